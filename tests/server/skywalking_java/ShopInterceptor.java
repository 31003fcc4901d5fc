// SPDX-License-Identifier: Apache-2.0
// The entry span "/buy" around the method that ShopPlugin names.
package plugin;

import java.lang.reflect.Method;
import org.apache.skywalking.apm.agent.core.context.ContextCarrier;
import org.apache.skywalking.apm.agent.core.context.ContextManager;
import org.apache.skywalking.apm.agent.core.plugin.interceptor.enhance.EnhancedInstance;
import org.apache.skywalking.apm.agent.core.plugin.interceptor.enhance.InstanceMethodsAroundInterceptor;
import org.apache.skywalking.apm.agent.core.plugin.interceptor.enhance.MethodInterceptResult;

public class ShopInterceptor implements InstanceMethodsAroundInterceptor {
	@Override
	public void beforeMethod(EnhancedInstance shop, Method method, Object[] arguments, Class<?>[] types,
				 MethodInterceptResult result) {
		ContextManager.createEntrySpan("/buy", new ContextCarrier());
	}

	@Override
	public Object afterMethod(EnhancedInstance shop, Method method, Object[] arguments, Class<?>[] types, Object result) {
		ContextManager.stopSpan();
		return result;
	}

	@Override
	public void handleMethodException(EnhancedInstance shop, Method method, Object[] arguments, Class<?>[] types,
					  Throwable t) {
		ContextManager.activeSpan().log(t);
	}
}

// SPDX-License-Identifier: Apache-2.0
// Tells SkyWalking's agent which method serves a request. Maven Central has the agent without the
// plugins that know HTTP servers, so this test brings one of its own.
package plugin;

import org.apache.skywalking.apm.agent.core.plugin.interceptor.ConstructorInterceptPoint;
import org.apache.skywalking.apm.agent.core.plugin.interceptor.InstanceMethodsInterceptPoint;
import org.apache.skywalking.apm.agent.core.plugin.interceptor.enhance.ClassInstanceMethodsEnhancePluginDefine;
import org.apache.skywalking.apm.agent.core.plugin.match.ClassMatch;
import org.apache.skywalking.apm.agent.core.plugin.match.NameMatch;
import org.apache.skywalking.apm.dependencies.net.bytebuddy.description.method.MethodDescription;
import org.apache.skywalking.apm.dependencies.net.bytebuddy.matcher.ElementMatcher;
import org.apache.skywalking.apm.dependencies.net.bytebuddy.matcher.ElementMatchers;

public class ShopPlugin extends ClassInstanceMethodsEnhancePluginDefine {
	@Override
	protected ClassMatch enhanceClass() {
		return NameMatch.byName("Shop");
	}

	@Override
	public ConstructorInterceptPoint[] getConstructorsInterceptPoints() {
		return new ConstructorInterceptPoint[0];
	}

	@Override
	public InstanceMethodsInterceptPoint[] getInstanceMethodsInterceptPoints() {
		return new InstanceMethodsInterceptPoint[] {new InstanceMethodsInterceptPoint() {
			@Override
			public ElementMatcher<MethodDescription> getMethodsMatcher() {
				return ElementMatchers.named("buy");
			}

			@Override
			public String getMethodsInterceptor() {
				return "plugin.ShopInterceptor";
			}

			@Override
			public boolean isOverrideArgs() {
				return false;
			}
		}};
	}
}

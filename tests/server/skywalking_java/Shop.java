// SPDX-License-Identifier: Apache-2.0
// A service on the JDK's HTTP server, for SkyWalking's agent: GET /buy calls slowly() for 600 ms and
// then quickly() for 200 ms. Prints its port; ends when standard input does.
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

public class Shop {
	void slowly(long ms) {
		long end = System.nanoTime() + ms * 1000000;
		while (System.nanoTime() < end)
			Thread.onSpinWait();
	}

	void quickly(long ms) throws InterruptedException {
		Thread.sleep(ms);
	}

	// The plugin makes the entry span of it.
	public void buy(HttpExchange e) throws IOException, InterruptedException {
		slowly(600);
		quickly(200);
		e.sendResponseHeaders(200, -1);
		e.close();
	}

	public static void main(String[] args) throws IOException {
		Shop shop = new Shop();
		HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);

		server.createContext("/buy", e -> {
			try {
				shop.buy(e);
			} catch (InterruptedException interrupted) {
				throw new IOException(interrupted);
			}
		});
		server.setExecutor(Executors.newFixedThreadPool(4));
		server.start();
		System.out.println(server.getAddress().getPort());
		while (System.in.read() >= 0)
			;
		System.exit(0);
	}
}

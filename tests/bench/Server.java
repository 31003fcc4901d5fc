// SPDX-License-Identifier: Apache-2.0
// A web server each of whose answers allocates some 60 kB: java Server.java PORT
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;

public class Server {
    static String answer() {
        List<String> rows = new ArrayList<>();
        for (int i = 0; i < 500; i++)
            rows.add("{\"id\":" + i + ",\"name\":\"item " + i + "\"}");
        return "[" + String.join(",", rows) + "]";
    }

    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 64);
        server.createContext("/", exchange -> {
            byte[] body = answer().getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}

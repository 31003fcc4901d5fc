/* SPDX-License-Identifier: Apache-2.0 */
/* Runs Tomcat in its own process, with a servlet that does typical work. */
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.zip.GZIPOutputStream;

import javax.servlet.http.HttpServlet;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;

import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;

public class Server extends HttpServlet {
    static final Pattern WORD = Pattern.compile("(\\w+)-(\\d+)");
    private final Map<String, byte[]> cache = Collections.synchronizedMap(new HashMap<>());

    static class Item {
        final String name;
        final int count;

        Item(String name, int count) {
            this.name = name;
            this.count = count;
        }
    }

    static List<Item> items(int n) {
        List<Item> out = new ArrayList<>();
        for (int i = 0; i < n; i++)
            out.add(new Item("item-" + i * 7919 % 1009, i % 13));
        out.sort(Comparator.comparing((Item i) -> i.count).thenComparing(i -> i.name));
        return out;
    }

    static String render(List<Item> items) {
        StringBuilder page = new StringBuilder("<html><body>");
        Map<Integer, List<String>> groups = items.stream().collect(Collectors.groupingBy(
            i -> i.count, TreeMap::new, Collectors.mapping(i -> i.name, Collectors.toList())));
        groups.forEach((count, names) -> {
            page.append(String.format("<h2>%d</h2>", count));
            for (String name : names) {
                Matcher m = WORD.matcher(name);
                if (m.matches())
                    page.append("<p>").append(m.group(1)).append(' ').append(m.group(2));
            }
        });
        return page.append("</body></html>").toString();
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
            throws IOException {
        byte[] page = render(items(300)).getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream packed = new ByteArrayOutputStream();
        try (GZIPOutputStream gzip = new GZIPOutputStream(packed)) {
            gzip.write(page);
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(page);
            cache.put(new String(digest, StandardCharsets.ISO_8859_1), page);
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new IOException(e);
        }
        response.setContentType("text/html");
        PrintWriter out = response.getWriter();
        out.print(packed.size());
        out.println(new String(page, StandardCharsets.UTF_8));
    }

    public static void main(String[] args) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(args[0]);
        tomcat.setPort(0);
        Context context = tomcat.addContext("", args[0]);
        Tomcat.addServlet(context, "server", new Server());
        context.addServletMappingDecoded("/", "server");
        tomcat.start();
        System.out.println("port " + tomcat.getConnector().getLocalPort());
        tomcat.getServer().await();
    }
}

package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Reads configuration files as BrokerStartup does. A line of standard input is one file in base64;
 * a line of output is its properties and the settings that they change, by key, or a refusal. The
 * first line of output has all settings with their defaults.
 */
public class Settings {
    private static final List<Supplier<Object>> CONFIGS = List.of(
        BrokerConfig::new, NettyServerConfig::new, NettyClientConfig::new, MessageStoreConfig::new);

    public static void main(String[] args) throws Exception {
        Map<String, Object> defaults = settings(new Properties());
        System.out.println(JSON.toJSONString(defaults));
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(
                JSON.toJSONString(answer(line, defaults), JSONWriter.Feature.EscapeNoneAscii));
        }
    }

    private static Map<String, Object> answer(String line, Map<String, Object> defaults)
        throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        Properties properties = new Properties();
        try {
            properties.load(new ByteArrayInputStream(Base64.getDecoder().decode(line)));
        } catch (IllegalArgumentException e) {
            answer.put("refused", e.getMessage());
            return answer;
        }
        Map<String, Object> changed = settings(properties);
        changed.entrySet().removeAll(defaults.entrySet());
        answer.put("properties", new TreeMap<>(properties));
        answer.put("settings", changed);
        return answer;
    }

    /** Returns key and value of every setting that a file can change; doubles as their bits. */
    private static Map<String, Object> settings(Properties properties) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Supplier<Object> made : CONFIGS) {
            Object config = made.get();
            MixAll.properties2Object(properties, config);
            for (Method method : config.getClass().getMethods()) {
                if (method.getName().startsWith("set") && method.getParameterCount() == 1) {
                    String name = method.getName();
                    String key = name.substring(3, 4).toLowerCase() + name.substring(4);
                    Field field = field(config.getClass(), key);
                    if (field != null) {
                        field.setAccessible(true);
                        Object value = field.get(config);
                        found.put(key, value == null ? "null" : value.toString());
                    }
                }
            }
        }
        return found;
    }

    private static Field field(Class<?> type, String name) {
        for (Class<?> each = type; each != null; each = each.getSuperclass()) {
            try {
                return each.getDeclaredField(name);
            } catch (NoSuchFieldException e) {
                continue;
            }
        }
        return null;
    }
}

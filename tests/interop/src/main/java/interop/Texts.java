package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;

/**
 * Reads texts as RocketMQ does. A line of standard input is a JSON array: "level" and the text of a
 * delay level, or "properties" and the bytes of a record's properties in hex. A line of output is
 * the level, "null" if it is refused, or the properties.
 */
public class Texts {
    public static void main(String[] args) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONArray asked = JSON.parseArray(line);
            boolean isLevel = asked.getString(0).equals("level");
            Object answer = isLevel ? level(asked.getString(1)) : properties(asked.getString(1));
            System.out.println(JSON.toJSONString(answer, JSONWriter.Feature.EscapeNoneAscii));
        }
    }

    private static Integer level(String text) {
        Message message = new Message();
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_DELAY_TIME_LEVEL, text);
        try {
            return message.getDelayTimeLevel();
        } catch (NumberFormatException e) {
            return null;
        }
    }

    private static Map<String, String> properties(String hex) {
        byte[] data = HexFormat.of().parseHex(hex);
        return MessageDecoder.string2messageProperties(new String(data, StandardCharsets.UTF_8));
    }
}

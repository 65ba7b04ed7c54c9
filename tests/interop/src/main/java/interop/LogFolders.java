package interop;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.store.MappedFileQueue;
import org.apache.rocketmq.store.MultiPathMappedFileQueue;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.logfile.MappedFile;

/**
 * Loads folders as a commit log. A line of standard input is a folder, or several with commas, and
 * the size of its files; a line of output says whether it was loaded, and where its files begin.
 */
public class LogFolders {
    public static void main(String[] args) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t");
            System.out.println(JSON.toJSONString(answer(parts[0], Integer.parseInt(parts[1]))));
        }
    }

    private static Map<String, Object> answer(String folder, int size) {
        Map<String, Object> answer = new LinkedHashMap<>();
        MappedFileQueue files = files(folder, size);
        boolean loaded;
        try {
            loaded = files.load();
        } catch (RuntimeException e) { // a name that is not a number
            loaded = false;
        }
        answer.put("loaded", loaded);
        answer.put("begins", begins(files));
        files.shutdown(0);
        return answer;
    }

    private static MappedFileQueue files(String folder, int size) {
        if (!folder.contains(",")) {
            return new MappedFileQueue(folder, size, null);
        }
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathCommitLog(folder);
        return new MultiPathMappedFileQueue(config, size, null, null);
    }

    private static List<Long> begins(MappedFileQueue files) {
        return files.getMappedFiles().stream().map(MappedFile::getFileFromOffset).toList();
    }
}

package interop;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.rocketmq.store.MultiPathMappedFileQueue;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.logfile.MappedFile;

/**
 * Says where the files of a log in several paths would be created; creates none. A line of standard
 * input has the paths, the read-only paths, the full paths, the size of a file, and the number of
 * files, separated by tabs; a line of output is the path of each file and of the one after it.
 */
public class LogPlaces {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            out.println(JSON.toJSONString(
                places(parts[0], parts[1], parts[2], Integer.parseInt(parts[3]), Integer.parseInt(parts[4]))));
        }
    }

    private static List<String> places(String paths, String readOnly, String full, int size, int count) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathCommitLog(paths);
        config.setReadOnlyCommitLogStorePaths(readOnly);
        Set<String> fullPaths = Stream.of(full.split(",")).collect(Collectors.toSet());
        List<String> places = new ArrayList<>();
        MultiPathMappedFileQueue files = new MultiPathMappedFileQueue(config, size, null, () -> fullPaths) {
            @Override
            protected MappedFile doCreateMappedFile(String next, String nextNext) {
                places.add(next);
                places.add(nextNext);
                return null;
            }
        };
        try {
            for (int number = 0; number < count; number++) {
                files.tryCreateMappedFile((long) number * size);
            }
        } catch (ArithmeticException e) { // no path is left
            places.clear();
        }
        return places;
    }
}

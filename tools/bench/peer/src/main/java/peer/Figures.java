package peer;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Collectors;

/** What one line of work took, as the other side tells it too. */
final class Figures {
    private final Map<String, Object> values = new LinkedHashMap<>();

    static Figures of(String name, Object value) {
        return new Figures().with(name, value);
    }

    Figures with(String name, Object value) {
        values.put(name, value);
        return this;
    }

    /** Adds percentiles of nanoseconds, in microseconds. */
    Figures withLatencies(String name, long[] nanoseconds) {
        long[] sorted = nanoseconds.clone();
        Arrays.sort(sorted);
        for (double share : new double[] {50, 99, 99.9, 100}) {
            int at = (int) Math.min(sorted.length - 1, sorted.length * share / 100);
            values.put(name + "_p" + (share == 99.9 ? "99.9" : (int) share) + "_us", sorted[at] / 1e3);
        }
        return this;
    }

    String json() {
        return values.entrySet().stream()
            .map(entry -> '"' + entry.getKey() + "\": " + text(entry.getValue()))
            .collect(Collectors.joining(", ", "{", "}"));
    }

    private static String text(Object value) {
        if (value instanceof Number) {
            return value.toString();
        }
        return '"' + value.toString().replace("\\", "/").replace('"', '\'').replaceAll("\\p{Cntrl}", " ") + '"';
    }

    /** Processor time of the whole process, the JIT and the garbage collector too. */
    static double cpuSeconds() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    static long residentBytes() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("\\D", "")) * 1024;
            }
        }
        return 0;
    }
}

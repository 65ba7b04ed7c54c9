package peer;

import java.io.BufferedReader;
import java.io.InputStreamReader;

/**
 * Does work on RocketMQ's store: {@code Peer dir=… backend=… queues=…}, then a line of work on standard input,
 * such as {@code put 1000 threads=4}, and a line of figures on standard output for each.
 */
public final class Peer {
    private final Settings settings;
    private final Queues queues;
    private OpenStore opened;
    private Puts puts;
    private Asks asks;

    private Peer(Settings settings) {
        this.settings = settings;
        queues = new Queues(settings.number("queues", 8));
    }

    public static void main(String[] arguments) throws Exception {
        // The streams of the machine's locale are none of ours: all that is said is ASCII.
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Peer peer = new Peer(Settings.of(arguments, 0));
        try {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                System.out.println(peer.done(line.split(" ")).json());
                System.out.flush();
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.out.println(Figures.of("failed", failure.toString()).json());
            System.out.flush();
        } finally { // a shutdown waits for nine seconds in all; who needs one says "close"
            Runtime.getRuntime().halt(0);
        }
    }

    private Figures done(String[] words) throws Exception {
        int count = words.length > 1 && !words[0].equals("followed") ? Integer.parseInt(words[1]) : 0;
        Settings asked = Settings.of(words, 2);
        return switch (words[0]) {
            case "open" -> open();
            case "close" -> close();
            case "spent" -> Figures.of("cpu_seconds", Figures.cpuSeconds()).with("log_end", opened.store.getMaxPhyOffset());
            case "followed" -> opened.followed(Long.parseLong(words[1]));
            case "totals" -> opened.totals(queues);
            case "put" -> puts.single(count, asked.number("threads", 1));
            case "flight" -> puts.single(count, asked.number("puts", 1));
            case "list", "batch" -> puts.batches(count, asked.number("size", 32));
            case "paced" -> puts.paced(count, asked.number("rate", 10_000));
            case "delete" -> puts.deleteTopics();
            case "pull" -> asks.pull(count);
            case "gather" -> asks.gather(count);
            case "decode" -> asks.decode(count);
            case "time" -> asks.time(count);
            case "query" -> asks.query(count);
            default -> throw new IllegalArgumentException("no such work: " + words[0]);
        };
    }

    private Figures open() throws Exception {
        double cpu = Figures.cpuSeconds();
        long begin = System.nanoTime();
        opened = new OpenStore(settings);
        double seconds = (System.nanoTime() - begin) / 1e9;
        double spent = Figures.cpuSeconds() - cpu;
        System.gc(); // what opening left behind is not what the store needs
        puts = new Puts(opened, queues, settings);
        asks = new Asks(opened.store, queues);
        return Figures.of("count", 1).with("seconds", seconds).with("cpu_seconds", spent)
            .with("resident_bytes", Figures.residentBytes()).with("port", opened.port())
            .with("java", System.getProperty("java.version"));
    }

    private Figures close() {
        opened.store.shutdown();
        return Figures.of("count", 1);
    }
}

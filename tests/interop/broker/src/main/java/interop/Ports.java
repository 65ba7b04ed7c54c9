package interop;

import java.io.IOException;
import java.net.ServerSocket;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;

/** Ports for servers, below those that the system gives to connections: programs run side by side. */
final class Ports {
    private static final int FIRST = 10_000;
    private static final int COUNT = 2_700;
    private static final int RANGES = 8;

    /** What this program was given and may not have bound yet. */
    private static final Set<Integer> GIVEN = new HashSet<>();

    private Ports() { }

    /** A port that nobody listens to, nor to the second one below, which a broker takes too. */
    static synchronized int free() throws IOException {
        int first = FIRST + worker() % RANGES * COUNT;
        for (int tries = 0; ; tries++) {
            int port = ThreadLocalRandom.current().nextInt(first + 2, first + COUNT);
            if (GIVEN.contains(port) || GIVEN.contains(port - 2)) {
                continue;
            }
            try (ServerSocket one = new ServerSocket(port); ServerSocket fast = new ServerSocket(port - 2)) {
                GIVEN.add(port);
                GIVEN.add(port - 2);
                return port;
            } catch (IOException taken) {
                if (tries == 100) {
                    throw taken;
                }
            }
        }
    }

    /** The number of the process of tests, which starts one program after the other: each has ports of its own. */
    private static int worker() {
        String name = System.getenv().getOrDefault("PYTEST_XDIST_WORKER", "gw0");
        return Integer.parseInt(name.substring(2));
    }
}

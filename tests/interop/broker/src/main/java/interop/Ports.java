package interop;

import java.io.IOException;
import java.net.ServerSocket;
import java.util.concurrent.ThreadLocalRandom;

/** Ports for servers, below those that the system gives to connections: programs run side by side. */
final class Ports {
    private static final int FIRST = 10_000;
    private static final int COUNT = 2_700;
    private static final int RANGES = 8;

    private Ports() { }

    /** A port that nobody listens to, nor to the second one below, which a broker takes too. */
    static int free() throws IOException {
        int first = FIRST + worker() % RANGES * COUNT;
        for (int tries = 0; ; tries++) {
            int port = ThreadLocalRandom.current().nextInt(first + 2, first + COUNT);
            try (ServerSocket one = new ServerSocket(port); ServerSocket fast = new ServerSocket(port - 2)) {
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

package interop;

import java.io.IOException;
import java.net.ServerSocket;
import java.util.concurrent.ThreadLocalRandom;

/** Ports for servers, below those that the system gives to connections: programs run side by side. */
final class Ports {
    private static final int FIRST = 10_000;
    private static final int LAST = 32_000;

    private Ports() { }

    /** A port that nobody listens to, nor to the second one below, which a broker takes too. */
    static int free() throws IOException {
        for (int tries = 0; ; tries++) {
            int port = ThreadLocalRandom.current().nextInt(FIRST, LAST);
            try (ServerSocket one = new ServerSocket(port); ServerSocket fast = new ServerSocket(port - 2)) {
                return port;
            } catch (IOException taken) {
                if (tries == 100) {
                    throw taken;
                }
            }
        }
    }
}

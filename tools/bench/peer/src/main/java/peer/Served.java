package peer;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A whole broker with its defaults on a store: {@code Served dir=… backend=… queues=…} says its port, and ends with its input. */
public final class Served {
    private static final int FAST = 2; // a broker listens that many ports below, too

    private Served() { }

    public static void main(String[] arguments) throws Exception {
        Settings settings = Settings.of(arguments, 0);
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress("127.0.0.1");
        server.setListenPort(freePort());
        BrokerController broker = new BrokerController(
            named(), server, new NettyClientConfig(), OpenStore.config(settings));
        if (!broker.initialize()) {
            throw new IllegalStateException("initialize() answers false");
        }
        Queues queues = new Queues(settings.number("queues", 8));
        for (String topic : queues.topics()) {
            broker.getTopicConfigManager().putTopicConfig(new TopicConfig(topic, queues.perTopic, queues.perTopic));
        }
        broker.start();
        System.out.println(Figures.of("port", server.getListenPort()).json());
        System.out.flush();
        System.in.transferTo(System.err);
        Runtime.getRuntime().halt(0);
    }

    private static BrokerConfig named() {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        return config;
    }

    private static int freePort() throws IOException {
        while (true) {
            try (ServerSocket one = listening(0); ServerSocket two = listening(one.getLocalPort() - FAST)) {
                return one.getLocalPort();
            } catch (java.net.BindException taken) {
                continue;
            }
        }
    }

    private static ServerSocket listening(int port) throws IOException {
        return new ServerSocket(port, 1, InetAddress.getByName("127.0.0.1"));
    }
}

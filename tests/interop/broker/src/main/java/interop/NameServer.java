package interop;

import java.io.PrintStream;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/** A name server of RocketMQ's: says its port, and goes on until its input ends. */
public final class NameServer {
    private NameServer() { }

    public static void main(String[] words) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress("127.0.0.1");
        server.setListenPort(Ports.free());
        NamesrvConfig config = new NamesrvConfig();
        config.setKvConfigPath(System.getProperty("user.home") + "/kvConfig.json");
        config.setConfigStorePath(System.getProperty("user.home") + "/namesrv.properties");
        NamesrvController names = new NamesrvController(config, server);
        if (!names.initialize()) {
            throw new IllegalStateException("initialize failed");
        }
        names.start();
        out.println("{\"port\":" + server.getListenPort() + "}");
        out.flush();
        System.in.transferTo(System.err);
        names.shutdown();
        Runtime.getRuntime().halt(0);
    }
}

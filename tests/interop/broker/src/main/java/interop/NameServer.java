package interop;

import com.alibaba.fastjson2.JSON;
import java.io.PrintStream;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.controller.ControllerManager;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/**
 * A name server of RocketMQ's: says its port, and goes on until its input ends.
 *
 * <p>With the word <code>controller</code> it has a controller too, as with
 * <code>enableControllerInNamesrv=true</code>, and says where that one answers brokers.
 */
public final class NameServer {
    private NameServer() { }

    public static void main(String[] words) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        String home = System.getProperty("user.home");
        NettyServerConfig server = new NettyServerConfig();
        server.setBindAddress("127.0.0.1");
        server.setListenPort(Ports.free());
        NamesrvConfig config = new NamesrvConfig();
        config.setKvConfigPath(home + "/kvConfig.json");
        config.setConfigStorePath(home + "/namesrv.properties");
        NamesrvController names = new NamesrvController(config, server);
        if (!names.initialize()) {
            throw new IllegalStateException("initialize failed");
        }
        names.start();
        Map<String, Object> answer = new LinkedHashMap<>(Map.of("port", server.getListenPort()));
        ControllerManager controller = null;
        if (List.of(words).contains("controller")) {
            int port = Ports.free();
            controller = controller(home, port, (NettyServerConfig) server.clone());
            answer.put("controller", port);
        }
        out.println(JSON.toJSONString(answer));
        out.flush();
        System.in.transferTo(System.err);
        if (controller != null) {
            controller.shutdown();
        }
        names.shutdown();
        Runtime.getRuntime().halt(0);
    }

    private static ControllerManager controller(String home, int port, NettyServerConfig server) {
        ControllerConfig config = new ControllerConfig();
        config.setControllerDLegerGroup("group");
        config.setControllerDLegerPeers("n0-127.0.0.1:" + port);
        config.setControllerDLegerSelfId("n0");
        config.setControllerStorePath(home + "/controller");
        config.setConfigStorePath(home + "/controller.properties");
        config.setMappedFileSize(1 << 24);
        ControllerManager controller = new ControllerManager(config, server, new NettyClientConfig());
        if (!controller.initialize()) {
            throw new IllegalStateException("initialize of the controller failed");
        }
        controller.start();
        return controller;
    }
}

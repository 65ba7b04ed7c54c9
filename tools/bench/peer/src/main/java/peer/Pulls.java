package peer;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.sysflag.PullSysFlag;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.header.GetMaxOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;

/**
 * RocketMQ's client, for a broker at a port: {@code Pulls port=… queues=…}, then lines of work as for {@link Peer}.
 * All pulls share one connection, as those of a consumer do; messages are not decoded.
 */
public final class Pulls {
    private static final int PULL = 32;
    private static final long STEP = 104729;
    private static final int MILLISECONDS = 30_000;

    private final String address;
    private final Queues queues;
    private final NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
    private final AtomicLong asked = new AtomicLong();

    private Pulls(Settings settings) {
        address = "127.0.0.1:" + settings.number("port", 0);
        queues = new Queues(settings.number("queues", 8));
        client.start();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Pulls pulls = new Pulls(Settings.of(arguments, 0));
        try {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                Figures found = words[0].equals("totals") ? pulls.totals()
                    : pulls.pull(Integer.parseInt(words[1]), Settings.of(words, 2).number("threads", 1));
                System.out.println(found.json());
                System.out.flush();
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.out.println(Figures.of("failed", failure.toString()).json());
            System.out.flush();
        } finally {
            Runtime.getRuntime().halt(0);
        }
    }

    /** Pulls of 32 messages; {@code answer} is the size of their records. */
    private Figures pull(int count, int threads) throws Exception {
        long places = maxOffset(0) - PULL + 1;
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<Long>> parts = new ArrayList<>();
        long begin = System.nanoTime();
        for (int part = 0; part < threads; part++) {
            int share = count / threads + (part < count % threads ? 1 : 0);
            parts.add(pool.submit(() -> {
                long bytes = 0;
                for (int pulls = 0; pulls < share; pulls++) {
                    bytes += pulled(asked.getAndIncrement(), places);
                }
                return bytes;
            }));
        }
        long answer = 0;
        for (Future<Long> part : parts) {
            answer += part.get();
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        pool.shutdown();
        return Figures.of("count", count).with("seconds", seconds).with("answer", answer);
    }

    private int pulled(long number, long places) throws Exception {
        int queue = queues.of(number);
        long offset = number * STEP % places;
        PullMessageRequestHeader header = new PullMessageRequestHeader();
        header.setConsumerGroup("g");
        header.setTopic(queues.topic(queue));
        header.setQueueId(queues.id(queue));
        header.setQueueOffset(offset);
        header.setMaxMsgNums(PULL);
        header.setSysFlag(PullSysFlag.buildSysFlag(false, false, true, false));
        header.setCommitOffset(0L);
        header.setSuspendTimeoutMillis(0L);
        header.setSubscription("*");
        header.setSubVersion(1L);
        header.setExpressionType("TAG");
        RemotingCommand response = answered(RequestCode.PULL_MESSAGE, header);
        if (Long.parseLong(response.getExtFields().get("nextBeginOffset")) != offset + PULL) {
            throw new IllegalStateException("pull at " + offset + ": " + response.getExtFields());
        }
        return response.getBody().length;
    }

    private long maxOffset(int queue) throws Exception {
        GetMaxOffsetRequestHeader header = new GetMaxOffsetRequestHeader();
        header.setTopic(queues.topic(queue));
        header.setQueueId(queues.id(queue));
        return Long.parseLong(answered(RequestCode.GET_MAX_OFFSET, header).getExtFields().get("offset"));
    }

    private Figures totals() throws Exception {
        long units = 0;
        for (int queue = 0; queue < queues.count; queue++) {
            units += maxOffset(queue);
        }
        byte[] body = answered(RequestCode.GET_BROKER_RUNTIME_INFO, null).getBody();
        long end = JSON.parseObject(body).getJSONObject("table").getLong("commitLogMaxOffset");
        return Figures.of("units", units).with("log_end", end);
    }

    private RemotingCommand answered(int code, CommandCustomHeader header) throws Exception {
        RemotingCommand response = client.invokeSync(address, RemotingCommand.createRequestCommand(code, header), MILLISECONDS);
        if (response.getCode() != ResponseCode.SUCCESS) {
            throw new IllegalStateException("request " + code + ": " + response.getCode() + ", " + response.getRemark());
        }
        return response;
    }
}

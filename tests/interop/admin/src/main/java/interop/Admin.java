package interop;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/** What {@code bin/mqadmin} starts. */
public final class Admin {
    private Admin() { }

    public static void main(String[] words) {
        MQAdminStartup.main(words);
    }
}

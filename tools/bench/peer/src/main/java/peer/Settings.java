package peer;

import java.util.LinkedHashMap;
import java.util.Map;

/** Words {@code name=value}: of the whole program, or of one line of work. */
record Settings(Map<String, String> words) {

    static Settings of(String[] arguments, int from) {
        Map<String, String> words = new LinkedHashMap<>();
        for (int at = from; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            words.put(pair[0], pair[1]);
        }
        return new Settings(words);
    }

    String text(String name, String otherwise) {
        return words.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(words.getOrDefault(name, Integer.toString(otherwise)));
    }
}

/* The load generator of the benchmark: one client process over librdkafka, one line of JSON as its result.
 *
 *   load MODE brokers=HOST:PORT topic=NAME [key=value ...] [producer:SETTING=value ...] [consumer:SETTING=value ...]
 *
 * Modes:
 *   produce   as fast as the broker acknowledges, for `seconds`, at most `limit` bytes
 *   consume   from the start of every partition, to the end or for `seconds`
 *   both      produce and consume the same topic at once
 *   latency   `rate` records a second; acknowledgement and arrival measured from the intended send time
 *   first     time from the start of this process to the first acknowledged record
 *
 * Keys: size (bytes of a value), seconds, warmup (seconds at the start that do not count), partitions, limit, rate,
 * only (the one partition that is consumed).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "rdkafka.h"

#define MAX_SAMPLES 4000000
#define READ_BATCH 4096

static const char *brokers, *topic_name;
static long size = 1024, partitions = 1, rate = 1000, only = -1;
static double seconds = 2, warmup = 0.3, limit = 1e18;
static const char *settings[64];
static int settings_count;

static char *payload;
static int64_t count_from, count_until; /* the window that counts, in ns of the monotonic clock */
static long acked, acked_in_window, errors, read_count, read_in_window;
static int64_t first_ack, last_ack, first_read, last_read;
static volatile int producing = 1;

static uint32_t *ack_us, *read_us;
static long ack_samples, read_samples;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void sample(uint32_t *into, long *count, int64_t intended, int64_t at) {
    if (intended >= count_from && intended < count_until && *count < MAX_SAMPLES)
        into[(*count)++] = (uint32_t)((at - intended) / 1000);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    int64_t at = now_ns();
    (void)rk, (void)opaque;
    if (message->err) {
        if (message->err == RD_KAFKA_RESP_ERR__PURGE_QUEUE)
            return; /* never sent: the window had closed */
        if (errors++ == 0)
            fprintf(stderr, "delivery: %s\n", rd_kafka_err2str(message->err));
        return;
    }
    acked++;
    if (!first_ack)
        first_ack = at;
    last_ack = at;
    if (at >= count_from && at < count_until)
        acked_in_window++;
    if (ack_us) {
        int64_t intended;
        memcpy(&intended, message->payload, sizeof(intended));
        sample(ack_us, &ack_samples, intended, at);
    }
}

static rd_kafka_t *client(rd_kafka_type_t type) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", brokers, why, sizeof(why));
    if (type == RD_KAFKA_CONSUMER) {
        rd_kafka_conf_set(conf, "group.id", "bench", why, sizeof(why));
        rd_kafka_conf_set(conf, "enable.auto.commit", "false", why, sizeof(why));
        rd_kafka_conf_set(conf, "enable.partition.eof", "true", why, sizeof(why));
    } else {
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    }
    rd_kafka_conf_set(conf, "log_level", "3", why, sizeof(why));
    const char *mine = type == RD_KAFKA_CONSUMER ? "consumer:" : "producer:";
    for (int i = 0; i < settings_count; i++) {
        char name[128];
        const char *value = strchr(settings[i], '=');
        if (strncmp(settings[i], mine, strlen(mine)))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(value - settings[i] - 9), settings[i] + 9);
        if (rd_kafka_conf_set(conf, name, value + 1, why, sizeof(why)) != RD_KAFKA_CONF_OK)
            die(settings[i], why);
    }
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof(why));
    if (!rk)
        die("client", why);
    return rk;
}

/* Hand records to librdkafka until the window closes; the payload is not copied, so the client's own cost is small. */
static void produce(rd_kafka_t *rk) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, topic_name, NULL);
    double sent = 0;
    long number = 0, stride = size < 2048 ? 512 : 1000000 / size > 1 ? 1000000 / size : 1; /* whole batches */
    while (now_ns() < count_until && sent < limit) {
        for (int burst = 0; burst < 64 && sent < limit; burst++, number++) {
            int32_t partition = (int32_t)(number / stride % partitions);
            while (rd_kafka_produce(topic, partition, 0, payload, (size_t)size, NULL, 0, NULL) == -1) {
                if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                    die("produce", rd_kafka_err2str(rd_kafka_last_error()));
                rd_kafka_poll(rk, 5);
                if (now_ns() >= count_until)
                    break;
            }
            sent += (double)size;
        }
        rd_kafka_poll(rk, 0);
    }
    if (sent >= limit)
        rd_kafka_flush(rk, 60000);
    else
        rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE);
    rd_kafka_flush(rk, 30000);
    rd_kafka_topic_destroy(topic);
}

/* One record at each multiple of the period; a late one keeps its intended time, so a stall is not left out. */
static void produce_at_rate(rd_kafka_t *rk) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, topic_name, NULL);
    int64_t period = 1000000000 / rate, next = now_ns();
    for (long number = 0; next < count_until; number++, next += period) {
        int64_t at;
        while ((at = now_ns()) < next) {
            int64_t left_ms = (next - at) / 1000000;
            if (rd_kafka_poll(rk, left_ms > 0 ? (int)left_ms : 0) == 0 && left_ms == 0) {
                struct timespec nap = {0, (next - at) > 50000 ? 50000 : 5000};
                nanosleep(&nap, NULL);
            }
        }
        memcpy(payload, &next, sizeof(next));
        if (rd_kafka_produce(topic, (int32_t)(number % partitions), RD_KAFKA_MSG_F_COPY, payload, (size_t)size, NULL, 0,
                             NULL) == -1)
            die("produce", rd_kafka_err2str(rd_kafka_last_error()));
    }
    rd_kafka_flush(rk, 30000);
    rd_kafka_topic_destroy(topic);
}

/* Read every partition, or the only one, from `offset`: to the end of all of them, or until all that was acknowledged is read. */
static void consume(rd_kafka_t *rk, int64_t offset, int to_the_end) {
    rd_kafka_message_t *messages[READ_BATCH];
    rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new((int)partitions);
    long ended = 0;
    for (int p = 0; p < partitions; p++)
        if (only < 0 || p == only)
            rd_kafka_topic_partition_list_add(all, topic_name, p)->offset = offset;
    rd_kafka_assign(rk, all);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
    while (now_ns() < count_until + (to_the_end ? 0 : 2000000000)) {
        ssize_t got;
        if (read_us) { /* one by one: the batch call waits until the batch is full or the time is over */
            messages[0] = rd_kafka_consume_queue(queue, 20);
            got = messages[0] != NULL;
        } else {
            got = rd_kafka_consume_batch_queue(queue, 20, messages, READ_BATCH);
        }
        int64_t at = now_ns();
        for (ssize_t i = 0; i < got; i++) {
            if (messages[i]->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
                ended++;
            } else if (messages[i]->err) {
                if (errors++ == 0)
                    fprintf(stderr, "consume: %s\n", rd_kafka_message_errstr(messages[i]));
            } else {
                read_count++;
                if (!first_read)
                    first_read = at;
                last_read = at;
                if (at >= count_from && at < count_until)
                    read_in_window++;
                if (read_us) {
                    int64_t intended;
                    memcpy(&intended, messages[i]->payload, sizeof(intended));
                    sample(read_us, &read_samples, intended, at);
                }
            }
            rd_kafka_message_destroy(messages[i]);
        }
        if (to_the_end && ended >= all->cnt)
            break;
        if (!to_the_end && !producing && read_count >= acked)
            break;
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_partition_list_destroy(all);
}

static void *consume_beside(void *rk) {
    consume(rk, RD_KAFKA_OFFSET_BEGINNING, 0);
    return NULL;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void print_percentiles(const char *name, uint32_t *samples, long count) {
    if (count == 0)
        return;
    qsort(samples, (size_t)count, sizeof(*samples), ascending);
    printf(", \"%s_us\": {\"p50\": %u, \"p99\": %u, \"p99.9\": %u, \"max\": %u, \"count\": %ld}", name,
           samples[count / 2], samples[count * 99 / 100], samples[count * 999 / 1000], samples[count - 1], count);
}

static void print_result(int64_t started, double window_s) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"acked\": %ld, \"acked_in_window\": %ld, \"ack_span_s\": %.4f, \"read\": %ld, \"read_in_window\": %ld, "
           "\"read_span_s\": %.4f, \"window_s\": %.4f, \"errors\": %ld, \"cpu_s\": %.3f, \"wall_s\": %.3f, "
           "\"first_ack_s\": %.4f",
           acked, acked_in_window, (double)(last_ack - first_ack) / 1e9, read_count, read_in_window,
           (double)(last_read - first_read) / 1e9, window_s, errors, cpu, (double)(now_ns() - started) / 1e9,
           first_ack ? (double)(first_ack - started) / 1e9 : -1);
    print_percentiles("ack", ack_us, ack_samples);
    print_percentiles("read", read_us, read_samples);
    printf("}\n");
}

static void parse(int argc, char **argv) {
    for (int i = 2; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            die(argv[i], "key=value expected");
        if (strchr(argv[i], ':') && strchr(argv[i], ':') < value) {
            if (settings_count < 64)
                settings[settings_count++] = argv[i];
            continue;
        }
        *value++ = 0;
        if (!strcmp(argv[i], "brokers")) brokers = value;
        else if (!strcmp(argv[i], "topic")) topic_name = value;
        else if (!strcmp(argv[i], "size")) size = atol(value);
        else if (!strcmp(argv[i], "partitions")) partitions = atol(value);
        else if (!strcmp(argv[i], "rate")) rate = atol(value);
        else if (!strcmp(argv[i], "only")) only = atol(value);
        else if (!strcmp(argv[i], "seconds")) seconds = atof(value);
        else if (!strcmp(argv[i], "warmup")) warmup = atof(value);
        else if (!strcmp(argv[i], "limit")) limit = atof(value);
        else die(argv[i], "no such key");
    }
}

/* Text of words, as log lines are: it compresses about three times, as real payloads do. */
static void fill_payload(void) {
    static const char *words[] = {"order", "carrier", "delay", "2013-01-01", "JFK", "status=200", "GET /api/v1/", "user"};
    uint32_t state = 12345;
    payload = malloc((size_t)size + 64);
    for (long at = 0; at < size;) {
        state = state * 1664525u + 1013904223u;
        at += snprintf(payload + at, 48, "%s %u ", words[state >> 29], state >> 12 & 0xfffff);
    }
}

int main(int argc, char **argv) {
    int64_t started = now_ns();
    if (argc < 4)
        die("usage", "load MODE brokers=... topic=... [key=value ...]");
    parse(argc, argv);
    fill_payload();
    const char *mode = argv[1];
    rd_kafka_t *consumer = NULL, *producer = NULL;
    pthread_t beside;
    if (!strcmp(mode, "consume") || !strcmp(mode, "both") || !strcmp(mode, "latency")) {
        consumer = client(RD_KAFKA_CONSUMER);
        rd_kafka_poll_set_consumer(consumer);
    }
    if (strcmp(mode, "consume"))
        producer = client(RD_KAFKA_PRODUCER);
    if (!strcmp(mode, "latency")) {
        ack_us = malloc(MAX_SAMPLES * sizeof(*ack_us));
        read_us = malloc(MAX_SAMPLES * sizeof(*read_us));
    }
    count_from = now_ns() + (int64_t)(warmup * 1e9);
    count_until = count_from + (int64_t)(seconds * 1e9);
    if (consumer && producer)
        pthread_create(&beside, NULL, consume_beside, consumer);
    if (!strcmp(mode, "produce") || !strcmp(mode, "both"))
        produce(producer);
    else if (!strcmp(mode, "latency"))
        produce_at_rate(producer);
    else if (!strcmp(mode, "consume"))
        consume(consumer, RD_KAFKA_OFFSET_BEGINNING, 1);
    else if (!strcmp(mode, "first")) {
        limit = (double)size;
        while (!acked && now_ns() < count_until) {
            rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, topic_name, NULL);
            rd_kafka_produce(topic, 0, 0, payload, (size_t)size, NULL, 0, NULL);
            rd_kafka_flush(producer, (int)(seconds * 1000));
            rd_kafka_topic_destroy(topic);
        }
    } else
        die(mode, "no such mode");
    producing = 0;
    if (consumer && producer)
        pthread_join(beside, NULL);
    print_result(started, seconds);
    /* No orderly goodbye: leaving is not what is measured. */
    fflush(stdout);
    _exit(0);
}

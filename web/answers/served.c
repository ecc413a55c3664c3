// A small service for looking at the page: requests are tasks with scopes inside, images are in a
// heap of their own, and names are made to be mistaken for patterns and for each other.
#define HEAPLEDGER_ARENAS_WEAK
#include <heapledger/arena.h>
#include <heapledger/heapledger.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static heapledger_arena images, more;
static void *kept[400];
static int count;

static const heapledger_name request = HEAPLEDGER_TASK_NAME("request");
static const heapledger_name route_a = HEAPLEDGER_NAME("route=/a"), route_ab = HEAPLEDGER_NAME("route=/a/b");

static void keep(void *block, size_t size) {
    memset(block, 1, size);
    kept[count++] = block;
}

__attribute__((noinline)) static void parse(size_t size) {
    HEAPLEDGER_SCOPE("parse");
    keep(malloc(size), size);
}

__attribute__((noinline)) static void parse_again(void) {
    HEAPLEDGER_SCOPE("parse*");
    keep(malloc(640), 640);
}

__attribute__((noinline)) static void decode(heapledger_arena arena, size_t size) {
    HEAPLEDGER_SCOPE("decode");
    if (heapledger_arena_create) keep(heapledger_arena_malloc(arena, size), size);
}

__attribute__((noinline)) static void request_a(void) {
    HEAPLEDGER_SCOPE_NAMED_(&request, &route_a);
    for (int i = 0; i < 20; i++) parse(1000);
    decode(images, 30000);
}

__attribute__((noinline)) static void request_ab(void) {
    HEAPLEDGER_SCOPE_NAMED_(&request, &route_ab);
    for (int i = 0; i < 30; i++) parse(300);
    parse_again();
    decode(more, 9000);
}

static void *serve(void *unused) {
    for (int i = 0; i < 3; i++) {
        request_a();
        request_ab();
    }
    return unused;
}

int main(void) {
    if (heapledger_arena_create) {
        heapledger_arena_params params = HEAPLEDGER_ARENA_PARAMS("img");
        images = heapledger_arena_create(&params);
        params.label = "img2";
        more = heapledger_arena_create(&params);
    }
    keep(malloc(48), 48);
    pthread_t thread;
    pthread_create(&thread, NULL, serve, NULL);
    pthread_join(thread, NULL);
    for (int i = 0; i < count; i += 3) free(kept[i]);
    return 0;
}

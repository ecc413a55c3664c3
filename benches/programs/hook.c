/* A hook library for benches/instructions. It installs OBSERVERS observers that do nothing, and
 * REPLACEMENTS replacements that pass all calls on; both are defined when it is compiled. */
#include <heapledger/hooks.h>

HEAPLEDGER_HOOK_LIBRARY;

static void allocated(void *block, size_t size, heapledger_caller caller) { (void)block, (void)size, (void)caller; }
static void freed(void *block, heapledger_caller caller) { (void)block, (void)caller; }
static heapledger_observer observers[OBSERVERS + 1];

static const heapledger_functions *below;
static void *pass_malloc(size_t size) { return below->malloc(size); }
static void pass_free(void *block) { below->free(block); }
static heapledger_replacement replacement = HEAPLEDGER_REPLACEMENT(0, "pass", &below);

int heapledger_hook_init(const heapledger_functions *real, const heapledger_hooks *hooks) {
    const heapledger_observer observer = HEAPLEDGER_OBSERVER(0, "none", allocated, freed);
    int result = 0;
    (void)real;
    for (int at = 0; at < OBSERVERS; at++) {
        observers[at] = observer;
        result |= hooks->install_observer(&observers[at]);
    }
    replacement.functions.malloc = pass_malloc;
    replacement.functions.free = pass_free;
    if (REPLACEMENTS) result |= hooks->install_replacement(&replacement);
    return result;
}

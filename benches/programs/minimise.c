/* Minimises logic functions of two levels: merges implicants that differ in one variable until none
 * do, then picks prime implicants that cover the function. Each implicant, and each list of what it
 * covers, is a block. `minimise VARIABLES ROUNDS`. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct implicant {
    struct implicant *next;
    uint32_t values, free_variables;
    int is_merged, covered;
    uint32_t *terms; /* the terms that it covers */
};

struct level { struct implicant **groups; int variables; };

static void *some(size_t size) {
    void *block = calloc(1, size);
    if (!block) abort();
    return block;
}

static struct implicant *implicant(uint32_t values, uint32_t free_variables, int covered) {
    struct implicant *made = some(sizeof *made);
    made->values = values, made->free_variables = free_variables, made->covered = covered;
    made->terms = some((size_t)covered * sizeof *made->terms);
    return made;
}

static void drop(struct implicant *all) {
    while (all) {
        struct implicant *next = all->next;
        free(all->terms), free(all);
        all = next;
    }
}

/* Adds an implicant to the group of its number of ones, unless it is there. */
static void add(struct level *level, struct implicant *new) {
    struct implicant **group = &level->groups[__builtin_popcount(new->values)];
    for (struct implicant *each = *group; each; each = each->next)
        if (each->values == new->values && each->free_variables == new->free_variables) {
            drop(new);
            return;
        }
    new->next = *group, *group = new;
}

static struct level level_of(int variables) {
    return (struct level){some((size_t)(variables + 2) * sizeof(struct implicant *)), variables};
}

/* Merges neighbours into the next level; moves those without one to the primes. */
static struct level merge(struct level *from, struct implicant **primes, int *is_last) {
    struct level to = level_of(from->variables);
    *is_last = 1;
    for (int ones = 0; ones <= from->variables; ones++) {
        for (struct implicant *a = from->groups[ones]; a; a = a->next)
            for (struct implicant *b = from->groups[ones + 1]; b; b = b->next) {
                uint32_t apart = a->values ^ b->values;
                if (a->free_variables != b->free_variables || (apart & (apart - 1))) continue;
                struct implicant *both = implicant(a->values & b->values, a->free_variables | apart, a->covered + b->covered);
                memcpy(both->terms, a->terms, (size_t)a->covered * sizeof *a->terms);
                memcpy(both->terms + a->covered, b->terms, (size_t)b->covered * sizeof *b->terms);
                a->is_merged = b->is_merged = 1, *is_last = 0;
                add(&to, both);
            }
        for (struct implicant *each = from->groups[ones], *next; each; each = next) {
            next = each->next, each->next = NULL;
            if (each->is_merged) drop(each);
            else each->next = *primes, *primes = each;
        }
    }
    free(from->groups);
    return to;
}

/* Picks the prime that covers most of what is not covered yet, again and again. */
static int cover(const struct implicant *primes, char *is_open) {
    for (int count = 0;; count++) {
        const struct implicant *best = NULL;
        int most = 0;
        for (const struct implicant *each = primes; each; each = each->next) {
            int gain = 0;
            for (int at = 0; at < each->covered; at++) gain += is_open[each->terms[at]];
            if (gain > most) most = gain, best = each;
        }
        if (!best) return count;
        for (int at = 0; at < best->covered; at++) is_open[best->terms[at]] = 0;
    }
}

int main(int count, char **arguments) {
    int variables = count > 1 ? atoi(arguments[1]) : 8, rounds = count > 2 ? atoi(arguments[2]) : 1;
    uint64_t state = 1;
    for (int round = 0; round < rounds; round++) {
        struct level level = level_of(variables);
        struct implicant *primes = NULL;
        char *is_open = some((size_t)1 << variables);
        for (uint32_t term = 0; term < 1u << variables; term++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            if ((state >> 33) % 100 >= 70) continue;
            struct implicant *new = implicant(term, 0, 1);
            new->terms[0] = term, is_open[term] = 1;
            add(&level, new);
        }
        for (int is_last = 0; !is_last;) level = merge(&level, &primes, &is_last);
        printf("%d\n", cover(primes, is_open));
        drop(primes), free(is_open), free(level.groups);
    }
    return 0;
}

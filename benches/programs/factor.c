/* Factors numbers whose digits are in blocks of their own: each sum, product and remainder is a new
 * block, as in interpreters with big integers. `factor COUNT` factors so many numbers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct number { int length; uint32_t digits[]; }; /* the lowest digit first, without zeros at the end */

static struct number *make(int length) {
    struct number *made = malloc(sizeof *made + (size_t)length * sizeof *made->digits);
    if (!made) abort();
    made->length = length;
    return made;
}

static struct number *trimmed(struct number *of) {
    while (of->length && !of->digits[of->length - 1]) of->length--;
    return of;
}

static struct number *small(uint64_t value) {
    struct number *made = make(2);
    made->digits[0] = (uint32_t)value, made->digits[1] = (uint32_t)(value >> 32);
    return trimmed(made);
}

static int compare(const struct number *a, const struct number *b) {
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    for (int at = a->length; at-- > 0;)
        if (a->digits[at] != b->digits[at]) return a->digits[at] < b->digits[at] ? -1 : 1;
    return 0;
}

static struct number *product(const struct number *a, const struct number *b) {
    struct number *made = make(a->length + b->length);
    memset(made->digits, 0, (size_t)made->length * sizeof *made->digits);
    for (int at = 0; at < a->length; at++) {
        uint64_t carry = 0;
        for (int to = 0; to < b->length; to++) {
            carry += (uint64_t)a->digits[at] * b->digits[to] + made->digits[at + to];
            made->digits[at + to] = (uint32_t)carry, carry >>= 32;
        }
        made->digits[at + b->length] = (uint32_t)carry;
    }
    return trimmed(made);
}

static struct number *sum(const struct number *a, uint32_t b) {
    struct number *made = make(a->length + 1);
    uint64_t carry = b;
    for (int at = 0; at <= a->length; at++) {
        carry += at < a->length ? a->digits[at] : 0;
        made->digits[at] = (uint32_t)carry, carry >>= 32;
    }
    return trimmed(made);
}

static struct number *difference(const struct number *a, const struct number *b) { /* a is not less */
    struct number *made = make(a->length);
    int64_t borrow = 0;
    for (int at = 0; at < a->length; at++) {
        borrow += (int64_t)a->digits[at] - (at < b->length ? b->digits[at] : 0);
        made->digits[at] = (uint32_t)borrow, borrow >>= 32;
    }
    return trimmed(made);
}

static double value(const struct number *of) {
    double value = 0;
    for (int at = of->length; at-- > 0;) value = value * 4294967296.0 + of->digits[at];
    return value;
}

static struct number *remainder_of(const struct number *of, const struct number *by) {
    struct number *rest = small(0), *shift = small(1 << 16);
    for (int half = 2 * of->length; half-- > 0;) {
        struct number *shifted = product(rest, shift);
        free(rest);
        rest = sum(shifted, of->digits[half / 2] >> (16 * (half & 1)) & 0xffff);
        free(shifted);
        while (compare(rest, by) >= 0) {
            /* Not above the quotient, though doubles are rounded. */
            double guess = value(rest) / value(by) * (1 - 1e-9);
            struct number *times = small(guess < 1 ? 1 : (uint64_t)guess), *part = product(by, times);
            struct number *less = difference(rest, part);
            free(times), free(part), free(rest);
            rest = less;
        }
    }
    free(shift);
    return rest;
}

static struct number *common_divisor(const struct number *a, const struct number *b) {
    struct number *x = sum(a, 0), *y = sum(b, 0);
    while (y->length) {
        struct number *rest = remainder_of(x, y);
        free(x);
        x = y, y = rest;
    }
    free(y);
    return x;
}

static struct number *stepped(struct number *from, const struct number *modulus) {
    struct number *square = product(from, from), *more = sum(square, 1), *rest = remainder_of(more, modulus);
    free(from), free(square), free(more);
    return rest;
}

/* Pollard's rho method. */
static struct number *divisor(const struct number *of) {
    struct number *slow = small(2), *fast = small(2), *found = small(1);
    while (found->length == 1 && found->digits[0] == 1) {
        slow = stepped(slow, of), fast = stepped(stepped(fast, of), of);
        struct number *apart = compare(slow, fast) < 0 ? difference(fast, slow) : difference(slow, fast);
        free(found);
        found = common_divisor(apart, of);
        free(apart);
    }
    free(slow), free(fast);
    return found;
}

int main(int count, char **arguments) {
    static const uint32_t primes[] = {1000003, 2000003, 4000037, 8000009, 16000057, 32000011};
    int rounds = count > 1 ? atoi(arguments[1]) : 1;
    for (int round = 0; round < rounds; round++) {
        struct number *a = small(primes[round % 6]), *b = small(primes[(round + 1) % 6]);
        struct number *both = product(a, b), *found = divisor(both), *rest = remainder_of(both, found);
        if (rest->length) return 1;
        printf("%u\n", found->digits[0]);
        free(a), free(b), free(both), free(found), free(rest);
    }
    return 0;
}

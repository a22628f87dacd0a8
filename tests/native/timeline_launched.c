/* SPDX-License-Identifier: Apache-2.0 */
/* The launches that are noted: the ring of them goes round, and what has been passed is found again only as long as it is
 * there. */
#include <string.h>

#include "tests/native/check.h"
#include "timeline/launched.h"

static struct lagom_launched launched;

static void note_launches(uint64_t from, uint64_t to)
{
    for (uint64_t call = from; call < to; call++) {
        struct lagom_note note = {.kind = LAGOM_NOTE_LAUNCH, .begin_ns = 1000 + call * 10, .end_ns = 1005 + call * 10};
        lagom_launched_note(&launched, &note);
        struct lagom_note of_it = note;
        of_it.kind = LAGOM_NOTE_CALL;
        of_it.span.call = call;
        lagom_launched_note(&launched, &of_it);
    }
}

static uint64_t found(uint64_t call)
{
    struct lagom_note ran = {.span = {.call = call, .start_ns = 5, .end_ns = 6}};
    return lagom_launched_ran(&launched, &ran);
}

static void what_waits_is_found(void)
{
    lagom_launched_start(&launched, 0);
    note_launches(0, 100);
    CHECK_EQUAL(found(0), 0);
    CHECK_EQUAL(found(99), 99);
    CHECK_EQUAL(found(100), launched.newest);
    CHECK_EQUAL(lagom_launched_at(&launched, 99)->ran.start_ns, 5);
    CHECK_EQUAL(lagom_launched_at(&launched, 99)->ran.end_ns, 6);
}

static void what_has_been_passed_is_found_for_a_while(void)
{
    lagom_launched_start(&launched, 0);
    note_launches(0, 2000);
    launched.oldest = 1000;
    CHECK_EQUAL(found(1000), 1000);
    CHECK_EQUAL(found(1000 - 512), 1000 - 512);
    CHECK_EQUAL(found(1000 - 513), launched.newest);
}

/* One whose place a newer one has taken is not looked for under its old number. */
static void what_is_overwritten_is_not_looked_at(void)
{
    lagom_launched_start(&launched, 0);
    note_launches(0, 2000);
    launched.oldest = 1000;
    note_launches(2000, 1000 + LAGOM_LAUNCHED - 100);
    uint64_t kept = lagom_launched_kept(&launched);
    CHECK_EQUAL(kept, 900);
    CHECK_EQUAL(found(kept), kept);
    CHECK_EQUAL(found(kept - 1), launched.newest);
    CHECK_EQUAL(found(launched.newest - 1), launched.newest - 1);
    CHECK_EQUAL(found(launched.newest - 300), launched.newest - 300);
}

int main(void)
{
    what_waits_is_found();
    what_has_been_passed_is_found_for_a_while();
    what_is_overwritten_is_not_looked_at();
    return 0;
}

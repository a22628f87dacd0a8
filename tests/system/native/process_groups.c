/* SPDX-License-Identifier: Apache-2.0 */
/* process_groups.c - the ranks of one node of a large job, as far as a tuner sees them: each makes its communicators and
 * stays.
 *
 *     process_groups PLUGIN RANKS < LIST
 *
 * LIST has a line for each communicator, in the order in which they are made: ID RANKS NODES MEMBERS, the last a bit for
 * each rank of this node; an empty line ends it. "ready" is printed once all are made; the ranks live until stdin ends.
 */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "imitation.h"

#define MOST 512
#define MOST_RANKS 16

static struct {
    unsigned long long id;
    unsigned long ranks, nodes, members;
} list[MOST];
static int count;

static void read_list(void)
{
    char line[128];
    while (fgets(line, sizeof(line), stdin) != NULL && line[0] != '\n') {
        if (count == MOST || sscanf(line, "%llu %lu %lu %lu", &list[count].id, &list[count].ranks, &list[count].nodes,
                                    &list[count].members) != 4) {
            fail("the list cannot be read");
        }
        count++;
    }
}

static void be_a_rank(const char *plugin, int rank, int ready)
{
    static void *contexts[MOST];
    const struct tuner_v6 *tuner = load_tuner(plugin);
    for (int i = 0; i < count; i++) {
        if ((list[i].members >> rank & 1) != 0 &&
            tuner->init(&contexts[i], list[i].id, list[i].ranks, list[i].nodes, silent_log, NULL, NULL) != 0) {
            fail("init failed");
        }
    }
    if (write(ready, "x", 1) != 1) {
        fail("nobody waits");
    }
    for (;;) {
        pause();
    }
}

int main(int argc, char **argv)
{
    pid_t ranks[MOST_RANKS];
    int ready[2], size = argc == 3 ? atoi(argv[2]) : 0;
    char byte;
    if (size < 1 || size > MOST_RANKS || pipe(ready) != 0) {
        fail("usage: process_groups PLUGIN RANKS < LIST");
    }
    setvbuf(stdin, NULL, _IONBF, 0); /* what follows the list is for nobody else */
    read_list();
    for (int rank = 0; rank < size; rank++) {
        ranks[rank] = fork();
        if (ranks[rank] == 0) {
            close(ready[0]);
            be_a_rank(argv[1], rank, ready[1]);
        }
    }
    close(ready[1]);
    int made = 0;
    while (made < size && read(ready[0], &byte, 1) == 1) {
        made++;
    }
    printf("%s\n", made == size ? "ready" : "a rank failed");
    fflush(stdout);
    while (fgetc(stdin) != EOF) {
    }
    for (int rank = 0; rank < size; rank++) {
        kill(ranks[rank], SIGKILL);
        waitpid(ranks[rank], NULL, 0);
    }
    return made == size ? 0 : 1;
}

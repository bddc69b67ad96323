/* A loop of bench/c_solver.py: a generated controller is given recorded states, one after the other;
 * what each step takes, by the clock. At real-time priority, with its memory locked, where the system
 * permits that: it prints whether.
 *
 *     mpc_step STATES TIMES CONTROLS      files of doubles
 */
#include "m.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int save(const char *path, const double *numbers, size_t count)
{
    FILE *file = fopen(path, "wb");
    size_t written = file ? fwrite(numbers, sizeof *numbers, count, file) : 0;
    return !file || fclose(file) || written != count;
}

int main(int count, char **paths)
{
    const struct sched_param priority = {50};
    FILE *file = count == 4 ? fopen(paths[1], "rb") : NULL;
    double *states, *times, *controls;
    m_mpc *mpc;
    long size;
    size_t steps, k;
    int raised, locked;
    if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) < 0) return 2;
    rewind(file);
    steps = (size_t)size / sizeof(double) / M_NX;
    states = malloc((size_t)size);
    times = calloc(steps, sizeof *times);
    controls = calloc(steps * M_NU, sizeof *controls);
    mpc = m_mpc_init(malloc(m_mpc_memory()), m_mpc_memory());
    if (!states || !times || !controls || !mpc) return 2;
    if (fread(states, sizeof(double) * M_NX, steps, file) != steps) return 2;
    fclose(file);
    raised = !sched_setscheduler(0, SCHED_FIFO, &priority);
    locked = !mlockall(MCL_CURRENT | MCL_FUTURE);
    for (k = 0; k < 20 && k < steps; ++k) m_mpc_step(mpc, states + k * M_NX, 1e-3 * (double)k, controls);
    m_mpc_reset(mpc);
    for (k = 0; k < steps; ++k) {
        const double began = seconds();
        m_mpc_step(mpc, states + k * M_NX, 1e-3 * (double)k, controls + k * M_NU);
        times[k] = seconds() - began;
    }
    printf("%d %d\n", raised, locked);
    return save(paths[2], times, steps) || save(paths[3], controls, steps * M_NU);
}

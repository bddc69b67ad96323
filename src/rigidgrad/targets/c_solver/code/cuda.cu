/* --- the host: brings numbers to the device, launches kernels, and reads what they found ---------- */

#ifndef RIGIDGRAD_LAUNCH
#define RIGIDGRAD_LAUNCH(kernel, blocks, threads, shared, stream, ...) \
    kernel<<<blocks, threads, shared, stream>>>(__VA_ARGS__)
#endif

namespace {

enum { FREE_SHARED = 48 * 1024 }; /* bytes of shared memory that need no permission */

const double option_numbers[] = HOST_OPTIONS;
const double alpha_numbers[HOST_SIZES] = HOST_ALPHAS;

/* Arrays of all problems on the device; numbers of one problem and its knots. */
#define HOST_ARRAYS(each) \
    each(x, HOST_KNOTS * NX) each(u, HOST_KNOTS * NU) each(h, HOST_KNOTS) each(p, HOST_KNOTS * NP) \
    each(lower, HOST_KNOTS * NU) each(upper, HOST_KNOTS * NU) each(held, HOST_KNOTS * NU) \
    each(F, HOST_KNOTS * ND * NZ) each(g, HOST_KNOTS * NZ) each(H, HOST_KNOTS * NZ * NZ) \
    each(gap, HOST_KNOTS * ND) each(step, HOST_KNOTS * NZ) each(gains, HOST_KNOTS * NU * (ND + 1)) \
    each(closed, HOST_KNOTS * ND * (ND + 1)) each(end, HOST_BLOCKS * (ND + 1) * ND) \
    each(start, HOST_BLOCKS * (ND + 1) * ND) each(fine, HOST_BLOCKS) \
    each(X, HOST_SIZES * HOST_KNOTS * NX) each(U, HOST_SIZES * HOST_KNOTS * NU) \
    each(C, HOST_SIZES * HOST_SHOOTING) each(D, HOST_SIZES * HOST_SHOOTING * ND) \
    each(control, CONTROLS) each(curved, CURVED ? HOST_KNOTS * NZ * NZ : 1)

size_t rounded_up(size_t numbers) { return (numbers + 63) / 64 * 64; }

} // namespace

struct pfx_solver {
    int problems;
    cudaError_t error; /* the first one of a call */
    cudaStream_t stream;
    real *memory, *host;
    size_t size, host_size; /* numbers */
#define MEMBER(name, numbers) real *name;
    HOST_ARRAYS(MEMBER)
#undef MEMBER
    real *options, *alphas, *none;
};

namespace {

void noted(pfx_solver *s, cudaError_t error)
{
    if (s->error == cudaSuccess) s->error = error;
}

void bring(pfx_solver *s, real *to, size_t numbers)
{
    noted(s, cudaMemcpyAsync(to, s->host, numbers * sizeof(real), cudaMemcpyHostToDevice, s->stream));
    noted(s, cudaStreamSynchronize(s->stream));
}

void fetch(pfx_solver *s, const real *from, size_t numbers)
{
    noted(s, cudaMemcpyAsync(s->host, from, numbers * sizeof(real), cudaMemcpyDeviceToHost, s->stream));
    noted(s, cudaStreamSynchronize(s->stream));
}

int grid(long items) { return items < 1 ? 1 : items > 65535 ? 65535 : (int)items; }

long shared_of(long bytes) { return bytes > FREE_SHARED ? bytes : 0; }

#define HOST_LAUNCH(kernel, items, threads, shared, ...) \
    do { \
        RIGIDGRAD_LAUNCH(kernel, grid(items), threads, (size_t)shared_of(shared), s->stream, __VA_ARGS__); \
        noted(s, cudaGetLastError()); \
    } while (0)

real *curvature_of(pfx_solver *s) { return CURVED ? s->curved : s->H; }

void roll_out(pfx_solver *s, int shooting, const real *alphas, int count)
{
    const int P = s->problems;
    const long simulations = (long)P * count * shooting;
    HOST_LAUNCH(solver_roll_out, (simulations + ROLL_GROUP - 1) / ROLL_GROUP, ROLL_GROUP, SHARED_ROLL_OUT,
                P, HOST_STEPS, shooting, HOST_BLOCKS, count, HOST_SIZES, 0, s->control, s->fine, alphas,
                s->h, s->p, s->x, s->u, s->lower, s->upper, s->gains, s->step, s->gap, s->X, s->U, s->C,
                s->D);
    HOST_LAUNCH(solver_select, P, GROUP, SHARED_SELECT, P, HOST_STEPS, shooting, HOST_BLOCKS, count,
                HOST_SIZES, 0, s->options, alphas, s->fine, s->g, curvature_of(s), s->step, s->X, s->U,
                s->C, s->D, s->start, s->control, s->x, s->u, s->gap, s->end);
}

/* An iteration of all problems that still run, or one that is refused. */
void iterate(pfx_solver *s)
{
    const int P = s->problems;
    const long rows = (long)P * HOST_KNOTS;
    HOST_LAUNCH(expand_thread_kernel, (rows + EXPAND_THREADS - 1) / EXPAND_THREADS, EXPAND_THREADS,
                SHARED_EXPAND, (int)rows, s->x, s->u, s->h, s->p, s->F, s->g, s->H);
    HOST_LAUNCH(solver_backward, (long)P * HOST_BLOCKS, GROUP, SHARED_BACKWARD, P, HOST_STEPS, HOST_BLOCKS,
                s->options, s->control, s->F, s->g, s->H, s->gap, s->end, s->u, s->lower, s->upper, s->x,
                s->h, s->p, curvature_of(s), s->held, s->start, s->gains, s->closed, s->fine);
    HOST_LAUNCH(solver_consensus, P, GROUP, SHARED_CONSENSUS, P, HOST_STEPS, HOST_BLOCKS, s->control,
                s->fine, s->gains, s->closed, s->step);
    roll_out(s, HOST_SHOOTING, s->alphas, HOST_SIZES);
}

/* Whether any problem still runs; the account of each is in `host` then. */
bool running(pfx_solver *s)
{
    bool any = false;
    fetch(s, s->control, (size_t)s->problems * CONTROLS);
    for (int k = 0; k < s->problems; ++k) any = any || (int)s->host[k * CONTROLS + STATUS] == RUNNING;
    return any && s->error == cudaSuccess;
}

/* Rows of the steps, and zeros for the last knot. */
void fill_rows(pfx_solver *s, real *to, const pfx_numbers *numbers, int width,
               const double *(*rows)(const pfx_numbers *))
{
    for (int k = 0; k < s->problems; ++k)
        for (int i = 0; i < HOST_KNOTS * width; ++i)
            s->host[(size_t)k * (HOST_KNOTS * width) + i]
                = i < HOST_STEPS * width ? (real)rows(numbers + k)[i] : (real)0;
    bring(s, to, (size_t)s->problems * HOST_KNOTS * width);
}

const double *guess_of(const pfx_numbers *n) { return n->u[0]; }
#if BOUNDED
const double *lower_of(const pfx_numbers *n) { return n->lower[0]; }
const double *upper_of(const pfx_numbers *n) { return n->upper[0]; }
#endif

/* A cost as good as none: that of residuals of 1e-12. */
double negligible(const pfx_numbers &n)
{
    static const int places[] = WEIGHT_PLACES;
    double sum = 0.0;
    for (int k = 0; k < HOST_KNOTS; ++k)
        for (size_t i = 0; i < sizeof places / sizeof *places; ++i)
            sum += reinterpret_cast<const double *>(&n.knot[k])[places[i]];
    return 0.5 * 1e-12 * 1e-12 * sum;
}

void bring_numbers(pfx_solver *s, const pfx_numbers *numbers)
{
    const int P = s->problems;
    noted(s, cudaMemsetAsync(s->memory, 0, s->size * sizeof(real), s->stream));
    for (size_t i = 0; i < sizeof option_numbers / sizeof *option_numbers; ++i)
        s->host[i] = (real)option_numbers[i];
    bring(s, s->options, sizeof option_numbers / sizeof *option_numbers);
    for (int i = 0; i < HOST_SIZES; ++i) s->host[i] = (real)alpha_numbers[i];
    bring(s, s->alphas, HOST_SIZES);
    for (int k = 0; k < P; ++k)
        for (int i = 0; i < HOST_KNOTS; ++i)
            s->host[k * HOST_KNOTS + i] = (real)numbers[k].h[i < HOST_STEPS ? i : HOST_STEPS - 1];
    bring(s, s->h, (size_t)P * HOST_KNOTS);
    for (int k = 0; k < P; ++k)
        for (int i = 0; i < HOST_KNOTS * NP; ++i)
            s->host[(size_t)k * HOST_KNOTS * NP + i]
                = (real) reinterpret_cast<const double *>(&numbers[k].knot[i / NP])[i % NP];
    bring(s, s->p, (size_t)P * HOST_KNOTS * NP);
    for (int k = 0; k < P; ++k)
        for (int i = 0; i < HOST_KNOTS * NX; ++i)
            s->host[(size_t)k * HOST_KNOTS * NX + i] = (real)numbers[k].start[i % NX];
    bring(s, s->x, (size_t)P * HOST_KNOTS * NX);
    fill_rows(s, s->u, numbers, NU, guess_of);
#if BOUNDED
    fill_rows(s, s->lower, numbers, NU, lower_of);
    fill_rows(s, s->upper, numbers, NU, upper_of);
#endif
    for (int i = 0; i < P * CONTROLS; ++i) s->host[i] = (real)0;
    for (int k = 0; k < P; ++k) {
        s->host[k * CONTROLS + FRESH] = s->host[k * CONTROLS + NEWTON] = (real)1;
        s->host[k * CONTROLS + NEGLIGIBLE] = (real)negligible(numbers[k]);
    }
    bring(s, s->control, (size_t)P * CONTROLS);
}

/* Simulates from the start with the gains around what was found, which leaves no defects between
 * blocks; accounts stay as they are, but for the cost. */
void close_defects(pfx_solver *s)
{
    for (int k = 0; k < s->problems; ++k) {
        real *const status = s->host + k * CONTROLS + STATUS;
        *status = (real)((int)*status == DIVERGED ? DIVERGED : BEGIN);
    }
    bring(s, s->control, (size_t)s->problems * CONTROLS);
    roll_out(s, 1, s->none, 1);
}

int status_of(int status)
{
    switch (status) {
    case CONVERGED: return PFX_CONVERGED;
    case STALLED: return PFX_STALLED;
    case DIVERGED: return PFX_DIVERGED;
    case TROUBLE: return PFX_SINGULAR;
    case SLOW: return PFX_SLOW;
    default: return PFX_ITERATIONS;
    }
}

void read_solutions(pfx_solver *s, pfx_solution *found)
{
    const int P = s->problems;
    fetch(s, s->x, (size_t)P * HOST_KNOTS * NX);
    for (int k = 0; k < P; ++k)
        for (int i = 0; i < HOST_KNOTS * NX; ++i)
            found[k].x[i / NX][i % NX] = (double)s->host[(size_t)k * HOST_KNOTS * NX + i];
    fetch(s, s->u, (size_t)P * HOST_KNOTS * NU);
    for (int k = 0; k < P; ++k)
        for (int i = 0; i < HOST_STEPS * NU; ++i)
            found[k].u[i / NU][i % NU] = (double)s->host[(size_t)k * HOST_KNOTS * NU + i];
    fetch(s, s->gains, (size_t)P * HOST_KNOTS * NU * (ND + 1));
    for (int k = 0; k < P; ++k)
        for (int i = 0; i < HOST_STEPS * NU; ++i)
            for (int j = 0; j < ND; ++j)
                found[k].K[i / NU][i % NU][j]
                    = (double)s->host[((size_t)k * HOST_KNOTS * NU + i) * (ND + 1) + j];
}

} // namespace

int pfx_init(pfx_solver **solver, int problems)
{
    pfx_solver *const s = new (std::nothrow) pfx_solver();
    size_t most = 0, at = 0;
    *solver = nullptr;
    if (!s || problems < 1) {
        delete s;
        return -1;
    }
    s->problems = problems;
#define PLACED(name, numbers) \
    at += rounded_up((size_t)problems * (numbers)); \
    if ((size_t)problems * (numbers) > most) most = (size_t)problems * (numbers);
    HOST_ARRAYS(PLACED)
#undef PLACED
    s->size = at + 3 * 64;
    s->host_size = most > 64 ? most : 64;
    noted(s, cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    noted(s, cudaMalloc((void **)&s->memory, s->size * sizeof(real)));
    noted(s, cudaMallocHost((void **)&s->host, s->host_size * sizeof(real)));
    at = 0;
#define PLACED(name, numbers) \
    s->name = s->memory + at; \
    at += rounded_up((size_t)problems * (numbers));
    HOST_ARRAYS(PLACED)
#undef PLACED
    s->options = s->memory + at;
    s->alphas = s->options + 64;
    s->none = s->alphas + 64;
    HOST_ALLOW
    if (s->error != cudaSuccess) {
        const int error = (int)s->error;
        pfx_free(s);
        return error;
    }
    *solver = s;
    return 0;
}

void pfx_free(pfx_solver *s)
{
    if (!s) return;
    if (s->memory) cudaFree(s->memory);
    if (s->host) cudaFreeHost(s->host);
    if (s->stream) cudaStreamDestroy(s->stream);
    delete s;
}

size_t pfx_memory(int problems)
{
    size_t at = 3 * 64;
#define PLACED(name, numbers) at += rounded_up((size_t)problems * (numbers));
    HOST_ARRAYS(PLACED)
#undef PLACED
    return at * sizeof(real);
}

int pfx_solve(pfx_solver *s, const pfx_numbers *numbers, pfx_solution *found)
{
    const int P = s->problems;
    s->error = cudaSuccess;
    bring_numbers(s, numbers);
    roll_out(s, 1, s->none, 1); /* the states that the guess leads to */
    if (running(s))
        for (int k = 0; k < P; ++k) {
            s->host[k * CONTROLS + TOLERANCE] = (real)HOST_TOLERANCE;
            s->host[k * CONTROLS + LOOSE] = (real)HOST_LOOSE;
        }
    bring(s, s->control, (size_t)P * CONTROLS);
    while (HOST_ITERATIONS && running(s)) iterate(s);
    fetch(s, s->control, (size_t)P * CONTROLS);
    for (int k = 0; k < P; ++k) {
        const real *const c = s->host + k * CONTROLS;
        found[k].status = status_of((int)c[STATUS]);
        found[k].iterations = (long)c[ITERATIONS_DONE];
        found[k].cost = (double)c[COST];
    }
    if (HOST_SHOOTING > 1) {
        close_defects(s);
        fetch(s, s->control, (size_t)P * CONTROLS);
        for (int k = 0; k < P; ++k)
            if (found[k].status != PFX_DIVERGED) found[k].cost = (double)s->host[k * CONTROLS + COST];
    }
    read_solutions(s, found);
    return (int)s->error;
}

const char *pfx_error(int error)
{
    return error == -1 ? "problems must be at least one, and memory must suffice"
                       : cudaGetErrorString((cudaError_t)error);
}

const char *pfx_message(int status)
{
    static const char *const messages[] = MESSAGES;
    return status < 0 || status > PFX_TIME ? "no status" : messages[status];
}

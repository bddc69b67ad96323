/* The linear-quadratic problem of one step over all knots, and what Riccati's recursion keeps of it;
 * trajectories that were tried. */
typedef struct {
    double A[STEPS][NDX][NDX], B[STEPS][NDX][NU], Q[STEPS + 1][NDX][NDX], S[STEPS][NU][NDX];
    double R[STEPS][NU][NU], q[STEPS + 1][NDX], r[STEPS][NU];
    double d[STEPS + 1][NDX]; /* defects: of the start, then of the dynamics */
} lq_problem;

typedef struct {
    double F[STEPS][NDX * (NDX + NU)], L[STEPS][(NDX + NU) * (NDX + NU)], l[STEPS][NDX + NU];
    double d[STEPS + 1][NDX], V[STEPS + 1][(NDX + 1) * NDX];
    double gains[STEPS][NU * (NDX + 1)], factor[STEPS][NU * NU];
    double dx[STEPS + 1][NDX], du[STEPS][NU], lam[STEPS + 1][NDX];
} recursion;

typedef struct {
    double x[STEPS + 1][NX], u[STEPS][NU], d[STEPS + 1][NDX], J;
} trajectory;

typedef struct {
    lq_problem lq;
    recursion solved;
    double dx[STEPS + 1][NDX], du[STEPS][NU], lam[STEPS + 1][NDX]; /* the step */
    double gx[STEPS + 1][NDX], gu[STEPS][NU], moved[STEPS + 1][NDX], pushed[STEPS][NU];
    trajectory tried[SIZES + 1], first, chosen;
    double mu, slope, closing, began; /* the penalty of defects; what the step promises */
    double work[LQ_WORK];
#if BOUNDED
    double lower[STEPS][NU], upper[STEPS][NU]; /* of the step */
    double held[STEPS][NU], after[STEPS][NU];  /* -1, 0, 1: at the lower bound, free, at the upper */
    double values[STEPS][NU], fixed[STEPS][NU];
    double weight[STEPS][NU], push[STEPS][NU], z_low[STEPS][NU], z_up[STEPS][NU];
    double inside_du[STEPS][NU], inside_dx[STEPS + 1][NDX];
    int which[STEPS][NU], same[STEPS][NU];
#endif
} direct_loop;

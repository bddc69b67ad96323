/* What the augmented Lagrangian keeps from descent to descent, and what it measures with. */
typedef struct {
    long times;
    double tolerance, width, gap;
    double last[CONSTRAINTS], limit[CONSTRAINTS], corner[CONSTRAINTS], excess[CONSTRAINTS];
    double most[STEPS + 1][CONSTRAINTS], multiplier[STEPS + 1][CONSTRAINTS];
    double c[STEPS + 1][CONSTRAINTS];
    /* of the LQ problem of a few strides, by which penalties are scaled */
    double gx[STRIDES + 1][CONSTRAINTS][NDX], gu[STRIDES + 1][CONSTRAINTS][NU];
    double A[STRIDES][NDX][NDX], B[STRIDES][NDX][NU], H[STRIDES][NDX + NU][NDX + NU];
    double K[STRIDES][NU][NDX], noise[STRIDES][NU][NU], give[STRIDES + 1][CONSTRAINTS];
    double V[NDX][NDX], P[NDX][NDX], W[NDX][NDX], Q[NU][NDX], flattest[NU];
} outer_loop;

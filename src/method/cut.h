/*
 * Training goes on in the network that hard masks leave.
 *
 * A channel with mask 0 gives zeros and gets no gradient: behind hard masks the whole network and the one
 * without these channels compute the same and learn the same, but the small one does without most of the arithmetic. So
 * when its masks harden an objective is cut, and when the step ends what was learnt returns to the whole network,
 * which the next step starts from.
 */
#ifndef METHOD_CUT_H
#define METHOD_CUT_H

#include "method/objective.h"

/* Leaves of F_t, H_t and H_a what the masks keep, velocities included; F_t as it was becomes objective->whole, the
 * masks stand still, and programs and desks have to be made anew. After a failure the objective can only be freed. */
NODISCARD enum der_status objective_cut(struct objective *objective);

/* Writes what F_t has become since into objective->whole. Channels that are gone stay there as they were. */
NODISCARD enum der_status objective_mend(struct objective *objective);

#endif

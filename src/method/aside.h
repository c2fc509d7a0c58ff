/*
 * Images set aside for bias correction (correction.h): none of them is ever trained on, from the step on in which their
 * class is new.
 *
 * They are a share of what the memory keeps of a class, at places of its list that follow from the share alone: of the
 * first n images aside_count(share, n) are set aside, whatever n is. So a list may be shortened as always, has as many
 * left as it should have, and nothing else has to be remembered of them.
 */
#ifndef METHOD_ASIDE_H
#define METHOD_ASIDE_H

#include "data/view.h"

/* How many of n images of a class are set aside: a share of them, rounded down, but at least one, and never all. */
int aside_count(double share, int n);

/* Whether the image at this place of a class's list is one of them. */
bool aside_is_place(double share, int place);

/* Puts images set aside at their places among n ranked ones, until there are `quota` or either has run out. samples
 * [n + aside->n]: those ranked, best first; receives the list, whose length is returned. */
int aside_weave(const struct data_view *aside, double share, int quota, int64_t *samples, int n);

#endif

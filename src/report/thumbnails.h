/*
 * Small images for the page: exemplars by class, and the test images that a run is surest about and wrong.
 */
#ifndef REPORT_THUMBNAILS_H
#define REPORT_THUMBNAILS_H

#include "report/run_view.h"

/* {"note": text, "exemplars": [{"class", "kept", "shown", "image"}], "wrong": [{"sample", "label", "guess",
 * "confidence", "image"}]}. Images are data: URIs, a class's exemplars side by side in one, at most `budget`
 * bytes of them in all. Where the data set is not there any more, is another one or this build cannot write
 * images, the note says so, and the images are left out. */
NODISCARD enum der_status thumbnails_make(const struct run_view *run, const char *data,
                                          size_t budget, cJSON **out);

#endif

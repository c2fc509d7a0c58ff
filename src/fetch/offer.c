#include "fetch/offer.h"

#include "core/suggest.h"

#include <stddef.h>
#include <string.h>

/* The publishers print MD5 sums (cifar.html: 03b5dce01913d631647c71ecec9e9cb8 for cifar-100-binary.tar.gz,
 * c32a1d4ab5d03f1284b67883e8d87530 for cifar-10-binary.tar.gz; the README of Fashion-MNIST: 8d4fb7e6...,
 * 25c81989..., bef4ecab..., bb300cfd...). Of the same files these are the SHA-256 sums, as several data
 * libraries record them. */
static const struct offer offers[] = {
    {
        .name = "cifar100",
        .title = "CIFAR-100: 100 classes, 60,000 colour images of 32x32 pixels",
        .address = "https://www.cs.toronto.edu/~kriz/",
        .source = "https://www.cs.toronto.edu/~kriz/cifar.html",
        .licence = "no licence stated; the publisher asks for a citation (Krizhevsky, 2009)",
        .folder = "cifar-100-binary",
        .unpacked = 184440000,
        .kind = "cifar100",
        .n_classes = 100,
        .n_train = 50000,
        .n_test = 10000,
        .files = {{"cifar-100-binary.tar.gz", 168513733,
                   "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"}},
        .n_files = 1,
    },
    {
        .name = "cifar10",
        .title = "CIFAR-10: 10 classes, 60,000 colour images of 32x32 pixels",
        .address = "https://www.cs.toronto.edu/~kriz/",
        .source = "https://www.cs.toronto.edu/~kriz/cifar.html",
        .licence = "no licence stated; the publisher asks for a citation (Krizhevsky, 2009)",
        .folder = "cifar-10-batches-bin",
        .unpacked = 184380000,
        .kind = "cifar10",
        .n_classes = 10,
        .n_train = 50000,
        .n_test = 10000,
        .files = {{"cifar-10-binary.tar.gz", 170052171,
                   "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}},
        .n_files = 1,
    },
    {
        .name = "fashion-mnist",
        .title = "Fashion-MNIST: 10 classes, 70,000 grey images of 28x28 pixels",
        .address = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        .source = "https://github.com/zalandoresearch/fashion-mnist",
        .licence = "MIT licence, Zalando SE",
        .unpacked = 30878645,
        .kind = "idx",
        .n_classes = 10,
        .n_train = 60000,
        .n_test = 10000,
        .files = {{"train-images-idx3-ubyte.gz", 26421880,
                   "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
                  {"train-labels-idx1-ubyte.gz", 29515,
                   "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
                  {"t10k-images-idx3-ubyte.gz", 4422102,
                   "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
                  {"t10k-labels-idx1-ubyte.gz", 5148,
                   "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}},
        .n_files = 4,
    },
};

enum { N_OFFERS = sizeof offers / sizeof offers[0] };

int offer_count(void)
{
    return N_OFFERS;
}

const struct offer *offer_get(int index)
{
    return &offers[index];
}

const struct offer *offer_find(const char *name)
{
    for (int i = 0; i < N_OFFERS; i++)
        if (strcmp(offers[i].name, name) == 0)
            return &offers[i];
    return NULL;
}

const char *offer_suggest(const char *name)
{
    return suggest_word(name, &offers[0].name, N_OFFERS, sizeof offers[0]);
}

int64_t offer_download_size(const struct offer *offer)
{
    int64_t size = 0;
    for (int i = 0; i < offer->n_files; i++)
        size += offer->files[i].size;
    return size;
}

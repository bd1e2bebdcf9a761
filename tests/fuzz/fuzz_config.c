/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a kubeconfig: taken, with a server's URL, or refused with a sentence that names the file. Nothing is
 * started or read besides: exec plugins run and certificates are read only when they are asked for. */
#include "tests/fuzz/fuzz.h"

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/kube/config.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_close int fd = memfd_create("kubeconfig", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct kube_config_options options = {.kubeconfig = path};
    struct kube_config *config = NULL;
    auto_err struct err err = {0};
    if (kube_config_load(&options, &config, &err) != 0) {
        require(config == NULL && err.code != ERR_NONE && err.message != NULL);
        return 0;
    }
    require(str_starts(config->server, "https://") || str_starts(config->server, "http://"));
    require(!str_empty(config->namespace_));
    kube_config_free(config);
    return 0;
}

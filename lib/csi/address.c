/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/mem.h"
#include "lib/csi/client.h"

#include <string.h>
#include <sys/un.h>

char *csi_address_path(const char *address, struct err *err)
{
    auto_free char *path = NULL;
    if (str_starts(address, "unix://")) {
        const char *rest = address + strlen("unix://");
        rest += strspn(rest, "/");
        path = mem_printf("/%s", rest);
    } else if (str_starts(address, "unix:")) {
        path = mem_strdup(address + strlen("unix:"));
    } else if (*address == '/') {
        path = mem_strdup(address);
    } else {
        err_set(err, ERR_INVALID, "address \"%s\" is not a unix socket: unix:///path/to/csi.sock is", address);
        return NULL;
    }
    if (*path == '\0' || str_ends(path, "/")) {
        err_set(err, ERR_INVALID, "address \"%s\" names no socket file", address);
        return NULL;
    }
    if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
        err_set(err, ERR_INVALID, "socket path \"%s\" is longer than the %zu bytes the kernel allows", path,
                sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
        return NULL;
    }
    return mem_take(path);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Exit status: 0 told to stop, 1 something failed for good, 2 the command line is wrong. */
#include "lib/base/log.h"
#include "lib/observe/http.h"
#include "provisioner/options.h"
#include "provisioner/run.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void write_termination_log(const char *path, const char *reason)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC); /* only what kubelet made is written to */
    if (fd < 0)
        return;
    ssize_t written = write(fd, reason, strlen(reason));
    (void)written;
    close(fd);
}

static int run(const struct options *options)
{
    struct settings settings = {0};
    auto_err struct err err = {0};
    struct stop *stop = stop_new();
    stop_on_signals(stop);
    int status = 0;
    if (options_check(options, &settings, &err) < 0 || provisioner_run(options, &settings, stop, &err) < 0) {
        log_error("Cannot go on", kv_err(&err));
        write_termination_log(options->termination_log, err_text(&err));
        status = 1;
    }
    settings_free(&settings);
    stop_free(stop);
    return status;
}

int main(int argc, char **argv)
{
    static struct options options;
    thread_limit_memory(argv);
    observe_drop_tls();
    int status = 0;
    switch (flag_parse(&options_program, argc, argv, &options, NULL)) {
    case FLAG_OK:
        status = run(&options);
        break;
    case FLAG_EXIT:
        break;
    case FLAG_USAGE:
        status = 2;
        break;
    }
    flag_free(&options_program, &options);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The process that holds a pod's namespaces: reaps what is left to it and ends when told to. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

int main(void)
{
    sigset_t awaited;
    int signal_number;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGINT);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &awaited, NULL);
    while (sigwait(&awaited, &signal_number) == 0 && signal_number == SIGCHLD)
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    return 0;
}

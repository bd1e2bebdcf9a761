/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd sets GnuTLS up from a constructor, also for a server without TLS, and what GnuTLS keeps then, the
 * parsed ASN.1 grammar of certificates, is over 100 KiB of private memory. It counts who uses it: once from its own
 * constructor, once from libmicrohttpd's; both end here. Their destructors find nothing left to end, which they allow.
 */
#include "lib/observe/http.h"

#include <gnutls/gnutls.h>

#define USERS 2

void observe_drop_tls(void)
{
    for (int i = 0; i < USERS; i++)
        gnutls_global_deinit();
}

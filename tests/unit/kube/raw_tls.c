/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kube/raw_server.h"

#include "lib/base/mem.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>

static void check(bool good)
{
    if (!good)
        abort();
}

static char *take_bio(BIO *bio)
{
    char *data;
    long len = BIO_get_mem_data(bio, &data);
    char *text = mem_strndup(data, (size_t)len);
    BIO_free(bio);
    return text;
}

static char *certificate_pem(X509 *certificate)
{
    BIO *bio = BIO_new(BIO_s_mem());
    check(PEM_write_bio_X509(bio, certificate) == 1);
    return take_bio(bio);
}

static char *key_pem(EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());
    check(PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1);
    return take_bio(bio);
}

static void extend(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    check(extension != NULL && X509_add_ext(certificate, extension, -1) == 1);
    X509_EXTENSION_free(extension);
}

/* issuer NULL = self-signed authority */
static X509 *make(const char *name, EVP_PKEY *key, X509 *issuer, EVP_PKEY *issuer_key, const char *alternatives,
                  int lifetime_days)
{
    static long serial = 1;
    const long day = 24L * 3600;
    X509 *certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -1000 * day);
    X509_gmtime_adj(X509_getm_notAfter(certificate), lifetime_days * day);
    X509_set_pubkey(certificate, key);
    X509_NAME *subject = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer != NULL ? issuer : certificate));
    X509 *by = issuer != NULL ? issuer : certificate;
    extend(certificate, by, NID_basic_constraints, issuer != NULL ? "CA:FALSE" : "critical,CA:TRUE");
    extend(certificate, by, NID_subject_key_identifier, "hash");
    if (issuer != NULL)
        extend(certificate, by, NID_authority_key_identifier, "keyid");
    if (alternatives != NULL)
        extend(certificate, by, NID_subject_alt_name, alternatives);
    check(X509_sign(certificate, issuer_key, EVP_sha256()) > 0);
    return certificate;
}

struct raw_tls *raw_tls_new(const char *names, int lifetime_days)
{
    struct raw_tls *tls = mem_new(struct raw_tls);
    EVP_PKEY *keys[3];
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        check((keys[i] = EVP_EC_gen("P-256")) != NULL);
    X509 *authority = make("berth test authority", keys[0], NULL, keys[0], NULL, 10);
    X509 *server = make("server", keys[1], authority, keys[0], names, lifetime_days);
    X509 *client = make("berth-client", keys[2], authority, keys[0], NULL, 10);
    tls->authority = certificate_pem(authority);
    tls->certificate = certificate_pem(server);
    tls->key = key_pem(keys[1]);
    tls->client_certificate = certificate_pem(client);
    tls->client_key = key_pem(keys[2]);
    X509_free(authority);
    X509_free(server);
    X509_free(client);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        EVP_PKEY_free(keys[i]);
    return tls;
}

void raw_tls_free(struct raw_tls *tls)
{
    if (tls == NULL)
        return;
    free(tls->authority);
    free(tls->certificate);
    free(tls->key);
    free(tls->client_certificate);
    free(tls->client_key);
    free(tls);
}

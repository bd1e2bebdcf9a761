/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/file.h"
#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/kube/config_private.h"

#include <string.h>
#include <sys/stat.h>

#define FILE_LIMIT ((size_t)1 << 20)
#define STAT_INTERVAL CLOCK_SECOND        /* a file is looked at once a second at most … */
#define READ_INTERVAL (60 * CLOCK_SECOND) /* … and read once a minute at least */
#define EXPIRY_MARGIN (30 * CLOCK_SECOND)
#define EXEC_RETRY (5 * CLOCK_SECOND)     /* a failing plugin is not run once per request */
#define EXEC_INTERVAL (10 * CLOCK_SECOND) /* a plugin whose fresh credential is refused again has no better one */

struct stamp {
    struct timespec mtime;
    off_t size;
    ino_t inode;
};

struct kube_credentials {
    pthread_mutex_t mutex;
    struct kube_credential current; /* generation 0: nothing yet */
    bool have_times;
    int64_t looked, read; /* mono */
    struct stamp stamps[3];
    bool ran;        /* the plugin */
    int64_t ran_at;  /* mono */
    int64_t expires; /* wall; 0 = never */
    int64_t failed_at;
    struct err failure; /* of the last run; what others get until EXEC_RETRY is over */
};

struct kube_credentials *kube_credentials_new(void)
{
    struct kube_credentials *credentials = mem_new(struct kube_credentials);
    pthread_mutex_init(&credentials->mutex, NULL);
    return credentials;
}

void kube_credentials_free(struct kube_credentials *credentials)
{
    if (credentials == NULL)
        return;
    kube_credential_clear(&credentials->current);
    err_clear(&credentials->failure);
    pthread_mutex_destroy(&credentials->mutex);
    free(credentials);
}

void kube_credential_clear(struct kube_credential *credential)
{
    kube_wipe_string(&credential->token);
    kube_wipe_string(&credential->certificate_pem);
    kube_wipe_string(&credential->key_pem);
    credential->generation = 0;
}

static void copy(struct kube_credential *to, const struct kube_credential *from)
{
    *to = (struct kube_credential){
        .token = mem_strdup(from->token),
        .certificate_pem = mem_strdup(from->certificate_pem),
        .key_pem = mem_strdup(from->key_pem),
        .generation = from->generation,
    };
}

/* Takes the content of `fresh`; the generation moves only when it differs. */
static void adopt(struct kube_credentials *credentials, struct kube_credential *fresh)
{
    struct kube_credential *current = &credentials->current;
    bool same = current->generation != 0 && str_eq(current->token, fresh->token) &&
                str_eq(current->certificate_pem, fresh->certificate_pem) && str_eq(current->key_pem, fresh->key_pem);
    if (same) {
        kube_credential_clear(fresh);
        return;
    }
    fresh->generation = current->generation + 1;
    kube_credential_clear(current);
    *current = *fresh;
    *fresh = (struct kube_credential){0};
}

/* ---- files ---- */

static int read_token(const char *path, char **token, struct err *err)
{
    char *text = NULL;
    size_t len = 0;
    if (file_read(path, FILE_LIMIT, &text, &len, err) != 0)
        return err_wrap(err, "token file");
    size_t start = strspn(text, " \t\r\n");
    size_t end = strlen(text);
    while (end > start && strchr(" \t\r\n", text[end - 1]) != NULL)
        end--;
    int result = 0;
    if (end == start)
        result = err_set(err, ERR_INVALID, "token file %s is empty", path);
    for (size_t i = start; i < end && result == 0; i++)
        if (text[i] < 0x21 || text[i] == 0x7f)
            result = err_set(err, ERR_INVALID, "token file %s holds something that is no token", path);
    if (result == 0)
        *token = mem_strndup(text + start, end - start);
    kube_wipe_string(&text);
    return result;
}

static int read_pem(const char *path, const char *what, char **pem, struct err *err)
{
    size_t len = 0;
    if (file_read(path, FILE_LIMIT, pem, &len, err) != 0)
        return err_wrap(err, "%s", what);
    if (strstr(*pem, "-----BEGIN ") == NULL) {
        kube_wipe_string(pem);
        return err_set(err, ERR_INVALID, "%s: %s is no PEM file", what, path);
    }
    return 0;
}

static int read_all(const struct kube_config *config, struct kube_credential *fresh, struct err *err)
{
    *fresh = (struct kube_credential){0};
    int result = 0;
    if (config->token_file != NULL)
        result = read_token(config->token_file, &fresh->token, err);
    else
        fresh->token = mem_strdup(config->token);
    if (result == 0 && config->client_certificate_file != NULL)
        result = read_pem(config->client_certificate_file, "client certificate", &fresh->certificate_pem, err);
    else
        fresh->certificate_pem = mem_strdup(config->client_certificate_data);
    if (result == 0 && config->client_key_file != NULL)
        result = read_pem(config->client_key_file, "client key", &fresh->key_pem, err);
    else
        fresh->key_pem = mem_strdup(config->client_key_data);
    if (result != 0)
        kube_credential_clear(fresh);
    return result;
}

static void take_stamps(const struct kube_config *config, struct stamp stamps[3])
{
    const char *paths[3] = {config->token_file, config->client_certificate_file, config->client_key_file};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct stat status;
        stamps[i] = (struct stamp){.size = -1};
        if (paths[i] != NULL && stat(paths[i], &status) == 0)
            stamps[i] = (struct stamp){.mtime = status.st_mtim, .size = status.st_size, .inode = status.st_ino};
    }
}

static bool stamps_differ(const struct stamp a[3], const struct stamp b[3])
{
    for (size_t i = 0; i < 3; i++)
        if (a[i].mtime.tv_sec != b[i].mtime.tv_sec || a[i].mtime.tv_nsec != b[i].mtime.tv_nsec ||
            a[i].size != b[i].size || a[i].inode != b[i].inode)
            return true;
    return false;
}

static int refresh_files(struct kube_config *config, struct clock *clock, bool refused, struct err *err)
{
    struct kube_credentials *credentials = config->credentials;
    bool first = credentials->current.generation == 0;
    int64_t now = clock_mono(clock);
    bool has_files =
        config->token_file != NULL || config->client_certificate_file != NULL || config->client_key_file != NULL;
    if (!first && (!has_files || (!refused && now - credentials->looked < STAT_INTERVAL)))
        return 0;
    credentials->looked = now;
    struct stamp stamps[3]; /* taken before the read: a change in between is seen the next time */
    take_stamps(config, stamps);
    if (!first && !refused && now - credentials->read < READ_INTERVAL && !stamps_differ(stamps, credentials->stamps))
        return 0;
    struct kube_credential fresh;
    auto_err struct err problem = {0};
    if (read_all(config, &fresh, &problem) != 0) {
        if (first && config->token != NULL && config->token_file != NULL) {
            /* both are given: the fixed one serves until the file can be read */
            log_warn("The token file cannot be read, using the token of the kubeconfig", kv_err(&problem));
            credentials->current = (struct kube_credential){.token = mem_strdup(config->token), .generation = 1};
            return 0;
        }
        if (first)
            return err_move(err, &problem);
        log_warn("Credentials cannot be read again, keeping the old ones", kv_err(&problem));
        return 0;
    }
    credentials->read = now;
    memcpy(credentials->stamps, stamps, sizeof(stamps));
    adopt(credentials, &fresh);
    return 0;
}

/* ---- plugin ---- */

static int run_plugin(struct kube_config *config, struct clock *clock, struct stop *stop, struct err *err)
{
    struct kube_credentials *credentials = config->credentials;
    struct kube_credential fresh = {0};
    int64_t expires = 0;
    if (stop != NULL && stop_requested(stop))
        return err_set(err, ERR_CANCELLED, "the program stops");
    if (credentials->failure.code != ERR_NONE && clock_mono(clock) - credentials->failed_at < EXEC_RETRY)
        return err_copy(err, &credentials->failure);
    err_clear(&credentials->failure);
    auto_err struct err problem = {0};
    if (kube_exec_run(config->exec, stop, &fresh, &expires, &problem) != 0) {
        if (problem.code != ERR_CANCELLED) {
            credentials->failed_at = clock_mono(clock);
            err_copy(&credentials->failure, &problem);
        }
        return err_move(err, &problem);
    }
    if (fresh.certificate_pem == NULL) {
        fresh.certificate_pem = mem_strdup(config->client_certificate_data);
        fresh.key_pem = mem_strdup(config->client_key_data);
    }
    credentials->ran = true;
    credentials->ran_at = clock_mono(clock);
    credentials->expires = expires;
    adopt(credentials, &fresh);
    return 0;
}

static int refresh_exec(struct kube_config *config, struct clock *clock, struct stop *stop, bool refused,
                        struct err *err)
{
    struct kube_credentials *credentials = config->credentials;
    int64_t now = clock_wall(clock);
    bool ends_soon = credentials->expires != 0 && now >= credentials->expires - EXPIRY_MARGIN;
    bool again = refused && clock_mono(clock) - credentials->ran_at >= EXEC_INTERVAL;
    if (credentials->ran && !ends_soon && !again)
        return 0;
    auto_err struct err problem = {0};
    if (run_plugin(config, clock, stop, &problem) == 0)
        return 0;
    if (!credentials->ran || refused || now >= credentials->expires || problem.code == ERR_CANCELLED)
        return err_move(err, &problem);
    log_warn("Exec plugin failed, using its last credential while it lasts", kv_err(&problem));
    return 0;
}

/* A config made by hand has nowhere to remember anything: read it all. */
static int credential_of_plain(struct kube_config *config, struct kube_credential *credential, struct err *err)
{
    if (config->exec != NULL)
        return err_set(err, ERR_INTERNAL, "an exec plugin needs a config made by kube_config_load");
    if (read_all(config, credential, err) != 0)
        return -1;
    credential->generation = 1;
    return 0;
}

int kube_config_credential_renew(struct kube_config *config, struct clock *clock, struct stop *stop, uint64_t refused,
                                 struct kube_credential *credential, struct err *err)
{
    struct kube_credentials *credentials = config->credentials;
    *credential = (struct kube_credential){0};
    if (credentials == NULL)
        return credential_of_plain(config, credential, err);
    pthread_mutex_lock(&credentials->mutex);
    bool is_current = refused != 0 && refused == credentials->current.generation;
    int result = config->exec != NULL ? refresh_exec(config, clock, stop, is_current, err)
                                      : refresh_files(config, clock, is_current, err);
    if (result == 0)
        copy(credential, &credentials->current);
    pthread_mutex_unlock(&credentials->mutex);
    return result;
}

int kube_config_credential(struct kube_config *config, struct clock *clock, bool force,
                           struct kube_credential *credential, struct err *err)
{
    uint64_t refused = 0;
    if (clock == NULL)
        clock = clock_real();
    if (force && config->credentials != NULL) {
        pthread_mutex_lock(&config->credentials->mutex);
        refused = config->credentials->current.generation;
        pthread_mutex_unlock(&config->credentials->mutex);
    }
    return kube_config_credential_renew(config, clock, NULL, refused, credential, err);
}

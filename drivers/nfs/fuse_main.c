/* SPDX-License-Identifier: Apache-2.0 */
#include "drivers/nfs/fuse_fs.h"

#include "lib/base/log.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4

static void start_session(void *userdata, struct fuse_conn_info *connection)
{
    (void)userdata;
    connection->max_write = FS_MAX_WRITE;
    connection->want &= ~(unsigned)FUSE_CAP_SPLICE_READ;
    connection->want &= ~(unsigned)FUSE_CAP_ATOMIC_O_TRUNC; /* setattr does it, and counts */
}

static struct fuse_session *make_session(struct fs *fs)
{
    static struct fuse_lowlevel_ops operations = {.init = start_session};
    auto_str struct str options = {0};
    fs_add_name_operations(&operations);
    fs_add_file_operations(&operations);
    fs_add_directory_operations(&operations);
    str_add(&options, "allow_other,default_permissions,subtype=berth-nfs,fsname=");
    auto_free char *source =
        mem_printf("%s:%s/%s", fs->config.where.server, fs->config.where.export, fs->config.sub_dir);
    for (const char *p = source; *p != '\0'; p++) {
        if (*p == ',' || *p == '\\')
            str_add_char(&options, '\\');
        str_add_char(&options, *p);
    }
    char name[] = "berth-nfs", dash_o[] = "-o";
    char *words[] = {name, dash_o, options.data, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, words);
    struct fuse_session *session = fuse_session_new(&args, &operations, sizeof(operations), fs);
    fuse_opt_free_args(&args);
    return session;
}

/* The directory of the volume, before anything is mounted: a mistake is told while somebody listens. */
static int find_root(struct fs *fs, struct err *err)
{
    auto_share struct share *share = NULL;
    struct share_fh root;
    struct share_attr attr = {0};
    struct share_options options = {.clock = fs->clock,
                                    .credential = {.uid = fs->config.uid, .gid = fs->config.gid},
                                    .timeout = fs->config.timeout};
    if (share_open(&fs->config.where, &options, CLOCK_NEVER, NULL, &share, err) < 0)
        return -1;
    int error = share_walk(share, fs->config.sub_dir, &root, &attr);
    if (error == 0 && attr.type != SHARE_DIRECTORY)
        error = ENOTDIR;
    if (error != 0)
        return share_fail(share, error, err, "looking for directory %s", fs->config.sub_dir);
    inode_table_init(&fs->inodes, &root);
    return 0;
}

static void answer(const char *text)
{
    fprintf(stdout, "%s\n", text);
    fflush(stdout);
    fclose(stdout);
}

static int serve(struct fs *fs, const char *target, struct err *err)
{
    fs->session = make_session(fs);
    if (fs->session == NULL)
        return err_set(err, ERR_INTERNAL, "libfuse refused its options");
    if (fuse_session_mount(fs->session, target) != 0) {
        fuse_session_destroy(fs->session);
        return err_set(err, ERR_IO, "cannot mount on %s: is /dev/fuse there, and CAP_SYS_ADMIN?", target);
    }
    answer("mounted");
    pthread_t watch = thread_start("watch", fs_watch, fs);
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_max_threads(config, THREADS);
    int result = fuse_session_loop_mt(fs->session, config);
    fuse_loop_cfg_destroy(config);
    log_info("Unmounted", kv_str("target", target), kv_int("result", result));
    stop_request(fs->stop);
    thread_join(watch);
    fuse_session_unmount(fs->session);
    fuse_session_destroy(fs->session);
    return 0;
}

static int run(const char *config_path, const char *target, struct err *err)
{
    struct fs fs = {.config_path = config_path, .clock = clock_real(), .stop = stop_new()};
    pthread_mutex_init(&fs.pool_mutex, NULL);
    pthread_mutex_init(&fs.quota.mutex, NULL);
    int result = fuse_config_read(config_path, &fs.config, err);
    fs.quota.limit = (uint64_t)fs.config.limit;
    bool found = result == 0 && find_root(&fs, err) == 0;
    if (found) {
        result = serve(&fs, target, err);
        inode_table_clear(&fs.inodes);
    } else {
        result = -1;
    }
    fs_close_idle(&fs);
    fuse_config_clear(&fs.config);
    stop_free(fs.stop);
    return result;
}

int fuse_main(int argc, char **argv)
{
    auto_err struct err err = {0};
    if (argc != 3) {
        fprintf(stderr, "usage: berth-nfs mount-fuse CONFIG TARGET\n");
        return 2;
    }
    thread_limit_arenas();
    signal(SIGPIPE, SIG_IGN);
    if (run(argv[1], argv[2], &err) == 0)
        return 0;
    answer(err_text(&err));
    return 1;
}

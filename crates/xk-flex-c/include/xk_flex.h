/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libxk_flex: extensions, and their heaps and locks, for programs in C (docs/flex.md).
 *
 * Written by cbindgen from crates/xk-flex-c/src: change it there.
 *
 * Results. A function that returns int returns 0, or what is said there; if it fails, a negative
 * code. One that returns a pointer returns NULL if it fails, and sets errno. xk_flex_error() says
 * what happened. The codes:
 *
 *   EINVAL         an argument is NULL, or none of those that are allowed
 *   ENOENT         there is no extension, file, interface or variable of this name
 *   ENOEXEC        the object cannot be rewritten, loaded or attached
 *   EADDRINUSE     something else is mapped where the heap must be
 *   EFAULT         an address is not in the heap, or has no page, or is not aligned
 *   ENOMEM         there is no memory for the heap
 *   EBUSY          somebody else has the lock, or serves the extension
 *   ETIMEDOUT      the time is over
 *   EOPNOTSUPP     this extension has no heap, or nothing that could end its runs
 *   ENOLCK         threads of user space hold too many locks, or /proc cannot be read
 *   ENOTRECOVERABLE    a fault of this library
 *   others         as the kernel returns them; EIO if it says nothing better
 *
 * Threads. Several threads may use an extension at once. xk_flex_close() is called once, by the
 * last one.
 *
 * Addresses. A heap is at the same address in the programs and in each process, so that pointers
 * in it are followed as they are. Programs change it at any time. Memory that is there stays.
 *
 * Times are in nanoseconds. What needs the kernel (to open, to load, to map) needs the capabilities
 * CAP_BPF and CAP_PERFMON, and for XDP CAP_NET_ADMIN.
 */

#ifndef XK_FLEX_H
#define XK_FLEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * No limit: of a time.
 */
#define XK_FLEX_FOREVER UINT64_MAX

/**
 * Why a run was ended: it took too long.
 */
#define XK_FLEX_DEADLINE 1

/**
 * User space ended all runs.
 */
#define XK_FLEX_TERMINATE 2

/**
 * The kernel's limit of 8 million turns.
 */
#define XK_FLEX_TURNS 3

/**
 * It took more locks of the heap than a run may hold.
 */
#define XK_FLEX_LOCKS 4

/**
 * It returned by itself, but held locks of the heap.
 */
#define XK_FLEX_KEPT 5

/**
 * It accessed the heap where no page is.
 */
#define XK_FLEX_FAULT 6

/**
 * Bytes of a text in struct xk_flex_ended, with the NUL at its end. A longer one is cut.
 */
#define XK_FLEX_TEXT 64

/**
 * An extension.
 */
struct xk_flex;

/**
 * A lock that a thread has taken.
 */
struct xk_flex_guard;

/**
 * struct xk_lock of bpf/flex/lock.h.
 */
struct xk_lock;

/**
 * struct xk_rwlock of bpf/flex/lock.h.
 */
struct xk_rwlock;

/**
 * How an object is loaded. What is 0 has its default.
 */
struct xk_flex_options {
    /**
     * How long a run may take, in nanoseconds. 0: 10 ms. XK_FLEX_FOREVER: no deadline.
     */
    uint64_t deadline_ns;
    /**
     * Bytes that the heap has at most. 0: as many as the object declares.
     */
    uint64_t heap_bytes;
    /**
     * Bytes of the heap that are ready and unused. 0: 4 MiB.
     */
    uint64_t ready_bytes;
};

/**
 * What became of a heap.
 */
struct xk_flex_usage {
    /**
     * Bytes that have pages.
     */
    uint64_t ready_bytes;
    /**
     * Bytes that were handed out, and what the heap itself needs.
     */
    uint64_t used_bytes;
    /**
     * Bytes that it may have.
     */
    uint64_t most_bytes;
    /**
     * Objects that programs have allocated.
     */
    uint64_t allocated;
    /**
     * Objects that programs have freed.
     */
    uint64_t freed;
    /**
     * Allocations of programs for which there was no memory.
     */
    uint64_t refused;
    /**
     * What programs freed that was not allocated.
     */
    uint64_t invalid;
    /**
     * Objects that no list has taken back, since others were always faster.
     */
    uint64_t lost;
};

/**
 * A lock of a thread that died.
 */
struct xk_flex_broken {
    /**
     * Where it is.
     */
    struct xk_lock *lock;
    /**
     * The number of the thread.
     */
    uint32_t thread;
    /**
     * It had the lock, or read: what the lock protects may be half changed. If false, it waited.
     */
    bool held;
};

/**
 * A run that was ended.
 */
struct xk_flex_ended {
    /**
     * When: CLOCK_MONOTONIC.
     */
    uint64_t time_ns;
    /**
     * How much time counted for its deadline, from its first look on.
     */
    uint64_t spent_ns;
    /**
     * The address that it accessed last where no page is, if why is XK_FLEX_FAULT; else NULL.
     */
    const void *fault;
    /**
     * The lock of the heap for which it waited; NULL if it waited for none.
     */
    const void *lock;
    /**
     * XK_FLEX_DEADLINE, or another of those; xk_flex_why() names it.
     */
    uint32_t why;
    /**
     * It waited for itself, or for somebody who waited for it.
     */
    bool is_deadlock;
    /**
     * The function in which it was ended.
     */
    char function[XK_FLEX_TEXT];
    /**
     * The source line where it was ended: FILE.c:LINE.
     */
    char place[XK_FLEX_TEXT];
    /**
     * The source line of the access of fault, while its program is loaded; else "".
     */
    char fault_place[XK_FLEX_TEXT];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * What happened when a function of this library failed last in this thread; "" if none has. It is valid until the next
 * one fails in this thread. Never NULL.
 */
const char *xk_flex_error(void);

/**
 * The extension that `xk flex load` keeps under this name. Its heap is not mapped yet: call xk_flex_map() before you
 * follow a pointer. ENOENT: there is none.
 */
struct xk_flex *xk_flex_open(const char *name);

/**
 * Loads the object file of an extension, rewritten as far as the verifier needs it, and gives its heap the first pages.
 * No program is attached yet. It lasts until xk_flex_close(), or until the process ends. If options is NULL, all have
 * their defaults. EADDRINUSE: something is mapped where its heap must be, maybe the heap of another extension.
 */
struct xk_flex *xk_flex_load(const char *path,
                             const struct xk_flex_options *options);

/**
 * Attaches the programs of an object that xk_flex_load() has loaded, by their sections; those of XDP to the network
 * interface of this name, which may be NULL if there are none. ENOEXEC: one cannot be attached; then none is.
 */
int xk_flex_attach(const struct xk_flex *extension,
                   const char *interface);

/**
 * Closes an extension; NULL is nothing. If this process has loaded it, its programs are detached, its runs end, and it is
 * unloaded; one that `xk flex load` keeps stays. Pointers to its variables and into its heap are invalid then. If a lock
 * of its heap is held, the heap stays mapped until that is given back.
 */
void xk_flex_close(struct xk_flex *extension);

/**
 * The memory of a global variable of the extension, which its programs share, if it has this size in bytes. It is valid
 * until xk_flex_close(). Constants cannot be written. ENOENT: there is none of this name. EINVAL: it has another size.
 */
void *xk_flex_variable(const struct xk_flex *extension,
                       const char *name,
                       size_t size);

/**
 * How long runs may take from now on, in nanoseconds, also those that are under way. 0: 10 ms. XK_FLEX_FOREVER: no
 * deadline. EOPNOTSUPP: no loop of the extension looks at the time, because the verifier accepts it as it is.
 */
int xk_flex_set_deadline(const struct xk_flex *extension,
                         uint64_t nanoseconds);

/**
 * Ends all runs of the extension at their next looks, also those that begin later, until it is called with false. Its
 * programs stay attached. EOPNOTSUPP: as for xk_flex_set_deadline().
 */
int xk_flex_terminate(const struct xk_flex *extension,
                      bool terminate);

/**
 * Maps the heap of the extension, if it is not mapped yet, and returns where it begins: at the address that its object
 * gives. Functions that use the heap do it, too. The first page of a heap is never there. EADDRINUSE: something else is
 * mapped there. EOPNOTSUPP: it has no heap.
 */
void *xk_flex_map(const struct xk_flex *extension);

/**
 * Whether so many bytes at this address are in the heap, with pages. Returns 1 or 0.
 */
int xk_flex_is_there(const struct xk_flex *extension, const void *address, size_t size);

/**
 * Reads a word of 8 bytes, at once. EFAULT: there is none, or the address is not a multiple of 8.
 */
int xk_flex_read(const struct xk_flex *extension, const void *address, uint64_t *value);

/**
 * Writes a word of 8 bytes, at once. EFAULT: as for xk_flex_read().
 */
int xk_flex_write(const struct xk_flex *extension, void *address, uint64_t value);

/**
 * Memory of the heap, aligned to 16 bytes, with any content. Programs and user space may free it. ENOMEM: there is none.
 */
void *xk_flex_alloc(const struct xk_flex *extension,
                    size_t size);

/**
 * Frees what a program or user space has allocated in the heap; NULL is nothing. EFAULT: no object begins there. That an
 * object is freed twice is not noticed.
 */
int xk_flex_free(const struct xk_flex *extension,
                 void *object);

/**
 * Says what became of the heap.
 */
int xk_flex_usage(const struct xk_flex *extension, struct xk_flex_usage *usage);

/**
 * Gives the heap pages: so many that the bytes that shall be ready can be taken. Then it waits, at most so many
 * nanoseconds, until a program wants more, and gives them. Returns 1 if one did, and 0 otherwise, also if a signal came.
 * A thread that calls it again and again serves the heap until it is told to stop; a loop that waits for other things
 * calls it with 0 when xk_flex_wanted() can be read, and now and then. EBUSY: a process serves the extension
 * (`xk flex serve`). ENOMEM: the kernel gives no pages; what is there stays.
 */
int xk_flex_serve(const struct xk_flex *extension,
                  uint64_t nanoseconds);

/**
 * A file descriptor that can be read, for poll(), when a program wants pages: call xk_flex_serve() then. It belongs to
 * the extension.
 */
int xk_flex_wanted(const struct xk_flex *extension);

/**
 * Takes a lock of the heap, after those that came before; waits at most so many nanoseconds. Programs wait for the
 * thread until it calls xk_flex_unlock(), and those with a deadline are ended then: hold it for a short time. If the
 * thread dies, xk_flex_break_dead_locks() frees the lock. A thread that takes what it has waits for itself.
 * ETIMEDOUT: somebody else had it. EFAULT: no lock can be at this address.
 */
struct xk_flex_guard *xk_flex_lock(const struct xk_flex *extension,
                                   struct xk_lock *lock,
                                   uint64_t nanoseconds);

/**
 * Takes a lock of the heap that nobody has or waits for. EBUSY: somebody has it. EFAULT: as for xk_flex_lock().
 */
struct xk_flex_guard *xk_flex_trylock(const struct xk_flex *extension,
                                      struct xk_lock *lock);

/**
 * Begins to read, beside others that read, after those that came before; waits at most so many nanoseconds. Otherwise as
 * xk_flex_lock().
 */
struct xk_flex_guard *xk_flex_read_lock(const struct xk_flex *extension,
                                        struct xk_rwlock *lock,
                                        uint64_t nanoseconds);

/**
 * Begins to write, alone, after those that came before; waits at most so many nanoseconds. Otherwise as xk_flex_lock().
 */
struct xk_flex_guard *xk_flex_write_lock(const struct xk_flex *extension,
                                         struct xk_rwlock *lock,
                                         uint64_t nanoseconds);

/**
 * Gives back what one of the functions above has taken; NULL is nothing. Another thread may do it, while the one that
 * took it lives.
 */
void xk_flex_unlock(struct xk_flex_guard *guard);

/**
 * Frees all locks of the heap that threads of user space held or waited for when they died, and returns how many. If
 * found is not NULL, it is called for each of them, with context, when all are free. Threads of another PID namespace
 * count as dead. `xk flex serve` does this for the extensions that it serves.
 */
int xk_flex_break_dead_locks(const struct xk_flex *extension,
                             void (*found)(const struct xk_flex_broken *broken, void *context),
                             void *context);

/**
 * Takes the runs that were ended since the last call, the first one first: at most as many as there is room for in
 * ended. Returns how many; the others are returned by the next call. EOPNOTSUPP: `xk flex load` keeps the extension, and
 * the process that serves it takes them.
 */
int xk_flex_take_ended(const struct xk_flex *extension,
                       struct xk_flex_ended *ended,
                       size_t room);

/**
 * How many runs of the extension were ended since it was loaded, also those of which nothing else is known, because
 * there was no room for their reports.
 */
int xk_flex_count_ended(const struct xk_flex *extension,
                        uint64_t *count);

/**
 * Says why, for people: what completes "ended by". It stays valid. Never NULL.
 */
const char *xk_flex_why(uint32_t why);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* XK_FLEX_H */

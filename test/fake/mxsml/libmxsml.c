/*
 * A stand-in for the vendor's libmxsml.so with the same functions and structs,
 * for tests on machines without cards. What it shows is written in a text file
 * that the environment variable FAKE_METAX_CONFIG names; the file is read again
 * whenever it changes, so that faults can be made to happen. Slices are kept in
 * a second file, shared by all processes that load the library. The formats are
 * described in ../machine.go.
 *
 * FAKE_MXSML is the version whose functions are exported: 228, 231, or 0 for
 * the five that every caller needs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef FAKE_MXSML
#define FAKE_MXSML 231
#endif

#if FAKE_MXSML >= 228
#define SINCE_228 __attribute__((visibility("default")))
#else
#define SINCE_228 __attribute__((visibility("hidden"), unused))
#endif
#if FAKE_MXSML >= 231
#define SINCE_231 __attribute__((visibility("default")))
#else
#define SINCE_231 __attribute__((visibility("hidden"), unused))
#endif
#define ALWAYS __attribute__((visibility("default")))

/* ---- the documented layout ---- */

typedef unsigned int ret_t;

typedef struct { unsigned deviceId, type; char bdfId[32]; unsigned gpuId, nodeId; char uuid[96]; unsigned brand, mode; char deviceName[32]; } device_info_t;
typedef struct { long visTotal, visUse, vramTotal, vramUse, xttTotal, xttUse; } memory_info_t;
typedef struct { unsigned voltage, current, power; } electric_t;
typedef struct { float speed; unsigned width; } port_t;
typedef struct { float speed[7]; unsigned width[7]; } link_info_t;
typedef struct { int deviceId; char bdfId[32]; } remote_info_t;
typedef struct { unsigned parentDeviceId, sgpuId, vramQuota, swQueuePriority, computeQuota, minor, deviceQueuePriority; char uuid[96]; } sgpu_info_t;
typedef struct { long total, used, free; } sgpu_memory_t;
typedef struct { unsigned totalVramQuota, vramQuota, computeQuota; } sgpu_quota_t;
typedef struct { unsigned sramCE, sramUE, dramCE, dramUE, retiredPage; } ecc_t;
typedef struct { int unavailableCode; char unavailableReason[64]; } reason_t;
typedef struct { int number; int deviceId[128]; } device_ids_t;

_Static_assert(sizeof(device_info_t) == 184, "mxSmlDeviceInfo_t");
_Static_assert(offsetof(device_info_t, bdfId) == 8, "bdfId");
_Static_assert(offsetof(device_info_t, gpuId) == 40, "gpuId");
_Static_assert(offsetof(device_info_t, uuid) == 48, "uuid");
_Static_assert(offsetof(device_info_t, brand) == 144, "brand");
_Static_assert(offsetof(device_info_t, mode) == 148, "mode");
_Static_assert(offsetof(device_info_t, deviceName) == 152, "deviceName");
_Static_assert(sizeof(memory_info_t) == 48, "mxSmlMemoryInfo_t");
_Static_assert(offsetof(memory_info_t, vramTotal) == 16, "vramTotal");
_Static_assert(sizeof(electric_t) == 12, "mxSmlBoardWayElectricInfo_t");
_Static_assert(sizeof(port_t) == 8, "mxSmlSingleMxlkInfo_t");
_Static_assert(sizeof(link_info_t) == 56, "mxSmlMetaXLinkInfo_t");
_Static_assert(offsetof(link_info_t, width) == 28, "width");
_Static_assert(sizeof(remote_info_t) == 36, "mxSmlMetaXLinkRemoteInfo_t");
_Static_assert(sizeof(sgpu_info_t) == 124, "mxSmlSgpuInfo_t");
_Static_assert(offsetof(sgpu_info_t, uuid) == 28, "uuid");
_Static_assert(sizeof(sgpu_memory_t) == 24, "mxSmlSgpuMemoryInfo_t");
_Static_assert(sizeof(sgpu_quota_t) == 12, "mxSmlSgpuAvailableQuota_t");
_Static_assert(sizeof(ecc_t) == 20, "mxSmlEccErrorCount_t");
_Static_assert(sizeof(reason_t) == 68, "mxSmlDeviceUnavailableReasonInfo_t");
_Static_assert(sizeof(device_ids_t) == 516, "mxSmlVirtualDeviceIds_t");

enum { OK, FAILURE, NO_DEVICE, NOT_SUPPORTED, SYSFS_ERROR, SYSFS_WRITE_ERROR, INVALID_DEVICE, INVALID_DIE, DENIED, INVALID_INPUT, TOO_SMALL, BUSY = 23 };
enum { MAX_CARDS = 512, MAX_LINKS = 4096, MAX_FAULTS = 64, PORTS = 7, MAX_SGPU = 16, FIRST_PF = 100, MAX_PF = 16, STEP_MB = 128 };
enum { LEVEL_MULTIPLE = 2, LEVEL_NODE = 4, LEVEL_METAXLINK = 5, LEVEL_SYSTEM = 6 };
enum { PORT_NO_TRAINING, PORT_UP, PORT_DOWN, PORT_NO_USE = 5 };

/* ---- the configuration ---- */

typedef struct {
	char bdf[32], uuid[256], model[32], bios[64], swtch[32], reason[64];
	long memory, used;
	int numa, lost, brand, mode, physical, state, sgpu, temperature, power, usage, linkState;
	unsigned ecc[5];
} card_t;
typedef struct { int a, aPort, b, bPort, down; } link_t;
typedef struct { char kind[16], function[64]; int code, card; } fault_t;

static struct {
	char driver[64], maca[64], state[1024];
	int count; /* cards that mxSmlGetDeviceCount claims, if not -1 */
	int cards, links, faults, inuse;
	int quotaReserve; /* MB that slices may not use */
	card_t card[MAX_CARDS];
	link_t link[MAX_LINKS];
	fault_t fault[MAX_FAULTS];
	struct { int card, sgpu; } busy[MAX_FAULTS];
} conf;

/* Which configured card has which id: fixed when the library starts, like in
 * the real one, and made again only when it is started with flag 1. */
static int device[MAX_CARDS], devices = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stat seen;

static void copy(char *to, size_t size, const char *from) {
	strncpy(to, from, size - 1);
	to[size - 1] = 0;
}

static void card_line(int n, const char *key, const char *value) {
	if (n < 0 || n >= MAX_CARDS)
		return;
	while (conf.cards <= n) {
		card_t *c = &conf.card[conf.cards++];
		memset(c, 0, sizeof *c);
		c->numa = c->physical = -1;
		c->brand = 2;
		c->state = 1;
	}
	card_t *c = &conf.card[n];
	if (!strcmp(key, "bdf")) copy(c->bdf, sizeof c->bdf, value);
	else if (!strcmp(key, "uuid")) copy(c->uuid, sizeof c->uuid, value);
	else if (!strcmp(key, "model")) copy(c->model, sizeof c->model, value);
	else if (!strcmp(key, "bios")) copy(c->bios, sizeof c->bios, value);
	else if (!strcmp(key, "switch")) copy(c->swtch, sizeof c->swtch, value);
	else if (!strcmp(key, "reason")) copy(c->reason, sizeof c->reason, value);
	else if (!strcmp(key, "memory")) c->memory = atol(value);
	else if (!strcmp(key, "used")) c->used = atol(value);
	else if (!strcmp(key, "numa")) c->numa = atoi(value);
	else if (!strcmp(key, "lost")) c->lost = atoi(value);
	else if (!strcmp(key, "brand")) c->brand = atoi(value);
	else if (!strcmp(key, "mode")) c->mode = atoi(value);
	else if (!strcmp(key, "physical")) c->physical = atoi(value);
	else if (!strcmp(key, "state")) c->state = atoi(value);
	else if (!strcmp(key, "sgpu")) c->sgpu = atoi(value);
	else if (!strcmp(key, "temperature")) c->temperature = atoi(value);
	else if (!strcmp(key, "power")) c->power = atoi(value);
	else if (!strcmp(key, "usage")) c->usage = atoi(value);
	else if (!strcmp(key, "linkstate")) c->linkState = atoi(value);
	else if (!strcmp(key, "ecc")) sscanf(value, "%u %u %u %u %u", &c->ecc[0], &c->ecc[1], &c->ecc[2], &c->ecc[3], &c->ecc[4]);
}

static void unescape(char *s) { /* \xNN, for texts that no honest driver has */
	char *to = s;
	for (; *s; s++) {
		unsigned byte;
		if (s[0] == '\\' && s[1] == 'x' && sscanf(s + 2, "%2x", &byte) == 1) {
			*to++ = (char)byte;
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = 0;
}

static void load(void) {
	const char *path = getenv("FAKE_METAX_CONFIG");
	struct stat now;
	if (!path || stat(path, &now))
		return;
	if (now.st_ino == seen.st_ino && now.st_size == seen.st_size && now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
		return;
	FILE *f = fopen(path, "r");
	if (!f)
		return;
	seen = now;
	memset(&conf, 0, sizeof conf);
	conf.count = -1;
	char line[2048];
	while (fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		unescape(line);
		int n, at = 0;
		char key[64];
		link_t l = {0};
		fault_t fault = {.card = -1};
		if (sscanf(line, "card %d %63s %n", &n, key, &at) == 2 && at) card_line(n, key, line + at);
		else if (!strncmp(line, "driver ", 7)) copy(conf.driver, sizeof conf.driver, line + 7);
		else if (!strncmp(line, "maca ", 5)) copy(conf.maca, sizeof conf.maca, line + 5);
		else if (!strncmp(line, "state ", 6)) copy(conf.state, sizeof conf.state, line + 6);
		else if (sscanf(line, "reserve %d", &n) == 1) conf.quotaReserve = n;
		else if (sscanf(line, "count %d", &n) == 1) conf.count = n;
		else if (sscanf(line, "inuse %d %d", &l.a, &l.b) == 2 && conf.inuse < MAX_FAULTS) { conf.busy[conf.inuse].card = l.a; conf.busy[conf.inuse++].sgpu = l.b; }
		else if (sscanf(line, "link %d %d %d %d %d", &l.a, &l.aPort, &l.b, &l.bPort, &l.down) >= 4 && conf.links < MAX_LINKS) conf.link[conf.links++] = l;
		else if (sscanf(line, "fault %15s %63s %d %d", fault.kind, fault.function, &fault.code, &fault.card) >= 2 && conf.faults < MAX_FAULTS) conf.fault[conf.faults++] = fault;
	}
	fclose(f);
}

/* trigger ends the process that asked, or keeps it waiting, at one moment: a
 * file beside the configuration, CONFIG.trigger, says "kill before FUNCTION",
 * "kill after FUNCTION", or "hang" in place of "kill". It works once. The caller that
 * asks does so from a child of the process that is to be killed. */
static void trigger(const char *when, const char *function) {
	const char *config = getenv("FAKE_METAX_CONFIG");
	char path[1100], action[16], moment[16], name[64];
	if (!config)
		return;
	snprintf(path, sizeof path, "%s.trigger", config);
	FILE *f = fopen(path, "r");
	if (!f)
		return;
	int n = fscanf(f, "%15s %15s %63s", action, moment, name);
	fclose(f);
	if (n != 3 || strcmp(moment, when) || strcmp(name, function) || unlink(path))
		return;
	if (!strcmp(action, "kill"))
		kill(getppid(), SIGKILL);
	for (;;)
		pause();
}

static const char *current; /* the function that runs */

/* enter reads the configuration and does what the test wants of the call. */
static ret_t enter(const char *function, int dev) {
	pthread_mutex_lock(&lock);
	load();
	trigger("before", current = function);
	for (int i = 0; i < conf.faults; i++) {
		fault_t *f = &conf.fault[i];
		if (strcmp(f->function, function) || (f->card >= 0 && dev >= 0 && f->card != dev))
			continue;
		if (!strcmp(f->kind, "crash")) raise(SIGSEGV);
		if (!strcmp(f->kind, "abort")) abort();
		if (!strcmp(f->kind, "noise")) { printf("the library says something on standard output\n{\"id\":1}\n"); fflush(stdout); }
		if (!strcmp(f->kind, "hang")) {
			pthread_mutex_unlock(&lock);
			for (;;)
				pause();
		}
		if (!strcmp(f->kind, "error")) {
			pthread_mutex_unlock(&lock);
			return (ret_t)f->code;
		}
	}
	return OK;
}

static ret_t leave(ret_t code) {
	trigger("after", current);
	pthread_mutex_unlock(&lock);
	return code;
}

#define ENTER(dev) do { ret_t e_ = enter(__func__, (int)(dev)); if (e_) return e_; } while (0)

static void enumerate(void) {
	devices = 0;
	for (int i = 0; i < conf.cards; i++)
		if (!conf.card[i].lost && conf.card[i].mode != 1)
			device[devices++] = i;
}

static int nth_physical(unsigned n) {
	for (int i = 0; i < conf.cards; i++)
		if (conf.card[i].mode == 1 && !n--)
			return i;
	return -1;
}

/* number returns the configured card of an id, or -1. */
static int number(unsigned dev) {
	if (dev >= FIRST_PF && dev < FIRST_PF + MAX_PF)
		return nth_physical(dev - FIRST_PF);
	if (devices < 0 || dev >= (unsigned)devices)
		return -1;
	return device[dev] < conf.cards ? device[dev] : -1;
}

/* find returns the card of an id, or why it can't be asked. */
static ret_t find(unsigned dev, card_t **c) {
	int n = number(dev);
	if (n < 0)
		return INVALID_DEVICE;
	*c = &conf.card[n];
	return (*c)->lost ? NO_DEVICE : OK;
}

#define FIND(dev) card_t *c; { ret_t f_ = find(dev, &c); if (f_) return leave(f_); }

static ret_t put(char *buf, unsigned *size, const char *text) {
	if (!buf || !size || *size <= strlen(text))
		return TOO_SMALL;
	strcpy(buf, text);
	*size = (unsigned)strlen(text) + 1;
	return OK;
}

static int id_of(int card) {
	for (int i = 0; i < devices; i++)
		if (device[i] == card)
			return i;
	return -1;
}

/* ---- required functions ---- */

ALWAYS ret_t mxSmlInit(void) {
	ENTER(-1);
	if (devices < 0)
		enumerate();
	return leave(conf.cards ? OK : NO_DEVICE);
}

ALWAYS const char *mxSmlGetErrorString(ret_t code) {
	static const char *texts[] = {"Success", "Failure", "No device", "Operation not support", "Sysfs error", "Sysfs write error",
		"Invalid device id", "Invalid die id", "Permission denied", "Invalid input", "Insufficient size"};
	if (code < sizeof texts / sizeof *texts)
		return texts[code];
	return code == BUSY ? "Busy device" : "Reserved";
}

ALWAYS unsigned mxSmlGetDeviceCount(void) {
	if (enter(__func__, -1))
		return 0;
	unsigned n = conf.count >= 0 ? (unsigned)conf.count : (unsigned)(devices < 0 ? 0 : devices);
	leave(OK);
	return n;
}

static void fill_info(card_t *c, unsigned dev, int all, device_info_t *out) {
	memset(out, 0, sizeof *out);
	out->deviceId = dev;
	memcpy(out->bdfId, c->bdf, sizeof out->bdfId);
	if (!all)
		return;
	/* Not every text of the real one is ended by a NUL either. */
	memcpy(out->uuid, c->uuid, sizeof out->uuid);
	memcpy(out->deviceName, c->model, sizeof out->deviceName);
	out->gpuId = 0x9999 + dev;
	out->nodeId = dev + 1;
	out->brand = (unsigned)c->brand;
	out->mode = (unsigned)c->mode;
}

ALWAYS ret_t mxSmlGetDeviceInfo(unsigned dev, device_info_t *out) {
	ENTER(dev);
	FIND(dev);
	fill_info(c, dev, 1, out);
	return leave(OK);
}

ALWAYS ret_t mxSmlGetMemoryInfo(unsigned dev, memory_info_t *out) {
	ENTER(dev);
	FIND(dev);
	memset(out, 0, sizeof *out);
	out->visTotal = out->vramTotal = c->memory;
	out->visUse = out->vramUse = c->used;
	out->xttTotal = c->memory / 2;
	return leave(OK);
}

/* ---- optional functions ---- */

SINCE_228 ret_t mxSmlInitWithFlags(unsigned flags) {
	ENTER(-1);
	if (devices < 0 || flags == 1)
		enumerate();
	return leave(conf.cards ? OK : NO_DEVICE);
}

SINCE_228 unsigned mxSmlGetPfDeviceCount(void) {
	if (enter(__func__, -1))
		return 0;
	unsigned n = 0;
	while (nth_physical(n) >= 0)
		n++;
	leave(OK);
	return n;
}

SINCE_228 ret_t mxSmlGetVirtualDevicesByPhysicalId(unsigned dev, device_ids_t *out) {
	ENTER(dev);
	int parent = number(dev);
	if (parent < 0)
		return leave(INVALID_DEVICE);
	memset(out, 0, sizeof *out);
	for (int i = 0; i < conf.cards && out->number < 128; i++)
		if (conf.card[i].physical == parent && id_of(i) >= 0)
			out->deviceId[out->number++] = id_of(i);
	return leave(OK);
}

SINCE_228 ret_t mxSmlGetDeviceVersion(unsigned dev, unsigned unit, char *buf, unsigned *size) {
	ENTER(dev);
	FIND(dev);
	const char *text = unit == 0 ? c->bios : unit == 1 ? conf.driver : "";
	return leave(*text ? put(buf, size, text) : NOT_SUPPORTED);
}

SINCE_228 ret_t mxSmlGetMacaVersion(char *buf, unsigned *size) {
	ENTER(-1);
	return leave(conf.maca[0] ? put(buf, size, conf.maca) : NOT_SUPPORTED);
}

SINCE_228 ret_t mxSmlGetDeviceIpUsage(unsigned dev, unsigned ip, int *percent) {
	ENTER(dev);
	FIND(dev);
	if (ip != (c->brand == 1 ? 0u : 4u))
		return leave(NOT_SUPPORTED);
	*percent = c->usage;
	return leave(OK);
}

SINCE_228 ret_t mxSmlGetTemperatureInfo(unsigned dev, unsigned sensor, int *out) {
	ENTER(dev);
	FIND(dev);
	if (sensor)
		return leave(NOT_SUPPORTED);
	*out = c->temperature;
	return leave(OK);
}

SINCE_228 ret_t mxSmlGetBoardPowerInfo(unsigned dev, unsigned *n, electric_t *out) {
	ENTER(dev);
	FIND(dev);
	unsigned ways = c->brand == 1 ? 2 : 3;
	if (*n < ways)
		return leave(TOO_SMALL);
	*n = ways;
	for (unsigned i = 0; i < ways; i++) {
		unsigned power = (unsigned)c->power / ways + (i == 0 ? (unsigned)c->power % ways : 0);
		out[i] = (electric_t){12000, power / 12, power};
	}
	return leave(OK);
}

SINCE_228 ret_t mxSmlGetDeviceState(unsigned dev, int *state) {
	ENTER(dev);
	FIND(dev);
	*state = c->state && !c->reason[0];
	return leave(OK);
}

SINCE_228 ret_t mxSmlGetDeviceUnavailableReason(unsigned dev, reason_t *out) {
	ENTER(dev);
	FIND(dev);
	memset(out, 0, sizeof *out);
	if (c->reason[0]) {
		out->unavailableCode = 1;
		memcpy(out->unavailableReason, c->reason, sizeof out->unavailableReason);
	}
	return leave(OK);
}

SINCE_228 ret_t mxSmlGetTotalEccErrors(unsigned dev, ecc_t *out) {
	ENTER(dev);
	FIND(dev);
	memcpy(out, c->ecc, sizeof *out);
	return leave(OK);
}

static int linked(int a, int b) {
	for (int i = 0; i < conf.links; i++) {
		link_t *l = &conf.link[i];
		if (!l->down && ((l->a == a && l->b == b) || (l->a == b && l->b == a)))
			return 1;
	}
	return 0;
}

SINCE_228 ret_t mxSmlGetDeviceTopology(unsigned dev, unsigned other, unsigned *level) {
	ENTER(dev);
	FIND(dev);
	card_t *first = c;
	int a = number(dev), b = number(other);
	if (b < 0)
		return leave(INVALID_DEVICE);
	card_t *second = &conf.card[b];
	if (linked(a, b)) *level = LEVEL_METAXLINK;
	else if (first->swtch[0] && !strcmp(first->swtch, second->swtch)) *level = LEVEL_MULTIPLE;
	else *level = first->numa == second->numa ? LEVEL_NODE : LEVEL_SYSTEM;
	return leave(OK);
}

static link_t *at_port(int card, unsigned port, int *peer) {
	for (int i = 0; i < conf.links; i++) {
		link_t *l = &conf.link[i];
		if (l->a == card && (unsigned)l->aPort == port) { *peer = l->b; return l; }
		if (l->b == card && (unsigned)l->bPort == port) { *peer = l->a; return l; }
	}
	return NULL;
}

static port_t port_of(int card, unsigned port) {
	int peer;
	link_t *l = at_port(card, port, &peer);
	if (!l || l->down || conf.card[peer].lost)
		return (port_t){0, 0};
	return (port_t){32, 16};
}

SINCE_228 ret_t mxSmlGetMetaXLinkInfo(unsigned dev, link_info_t *out) {
	ENTER(dev);
	FIND(dev);
	memset(out, 0, sizeof *out);
	for (unsigned i = 0; i < PORTS; i++) {
		port_t p = port_of((int)(c - conf.card), i);
		out->speed[i] = p.speed;
		out->width[i] = p.width;
	}
	return leave(OK);
}

SINCE_231 ret_t mxSmlGetMetaXLinkInfo_v2(unsigned dev, unsigned *n, port_t *out) {
	ENTER(dev);
	FIND(dev);
	if (*n < PORTS)
		return leave(TOO_SMALL);
	*n = PORTS;
	for (unsigned i = 0; i < PORTS; i++)
		out[i] = port_of((int)(c - conf.card), i);
	return leave(OK);
}

SINCE_228 ret_t mxSmlGetMetaXLinkRemoteInfo(unsigned dev, unsigned port, remote_info_t *out) {
	ENTER(dev);
	FIND(dev);
	int peer;
	link_t *l = at_port((int)(c - conf.card), port, &peer);
	if (!l || l->down || conf.card[peer].lost)
		return leave(NO_DEVICE);
	memset(out, 0, sizeof *out);
	out->deviceId = id_of(peer);
	memcpy(out->bdfId, conf.card[peer].bdf, sizeof out->bdfId);
	return leave(OK);
}

SINCE_228 ret_t mxSmlGetMetaXLinkState(unsigned dev, unsigned *state, char *buf, unsigned *size) {
	ENTER(dev);
	FIND(dev);
	static const char *texts[] = {"Enabled", "Disabled by smi", "Disabled: SR-IOV is on", "Disabled: number of GPUs is invalid", "Training failed"};
	if (c->linkState < 0 || c->linkState > 4)
		return leave(FAILURE);
	*state = (unsigned)c->linkState;
	return leave(put(buf, size, texts[c->linkState]));
}

SINCE_228 ret_t mxSmlGetMetaXLinkPortState(unsigned dev, unsigned *states, unsigned *n) {
	ENTER(dev);
	FIND(dev);
	if (*n < PORTS)
		return leave(TOO_SMALL);
	*n = PORTS;
	for (unsigned i = 0; i < PORTS; i++) {
		int peer;
		link_t *l = at_port((int)(c - conf.card), i, &peer);
		states[i] = !l ? PORT_NO_USE : l->down || conf.card[peer].lost ? PORT_NO_TRAINING : PORT_UP;
	}
	return leave(OK);
}

SINCE_231 int mxSmlGetDeviceBoardId(unsigned dev) {
	if (enter(__func__, (int)dev))
		return -1;
	int n = number(dev);
	leave(OK);
	return n;
}

#include "sgpu.inc"

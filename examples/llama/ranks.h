// What a server of llama.cpp's RPC backend needs to sum tensors with servers in other processes,
// over Tutti: a library of four functions (ranks.c). docs/c.md says what it stands for, and
// client.c calls it as such servers do.
//
// Each server has one rank for each of its devices. The client, which knows all servers, asks that
// of rank 0 for an id, and tells each its rank, their number and the id. From then on all servers
// sum the same tensors in the same order. No function ends the process.
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct ranks ranks;

enum { RANKS_ID = 257 };  // bytes of an id: text, with the zero at its end
enum {                    // ggml's numbers of the types that are summed
  RANKS_F32 = 0,
  RANKS_F16 = 1,
  RANKS_BF16 = 30
};

/// A fresh id, for the client to carry to the other servers. Who has it may join. `address`: of
/// this host, for servers of other hosts; NULL: all servers are on this host.
bool ranks_id(const char* address, char id[RANKS_ID]);
/// Blocks until all `world` servers call it. NULL: it failed; the client then sums by itself.
ranks* ranks_init(const char* id, uint32_t rank, uint32_t world);
/// `data` becomes the sum over all ranks, with the same bits on each. False: the type is none of
/// the three, and nothing has happened; or a server is gone or late, and the connection has no use.
bool ranks_allreduce(ranks* of, void* data, int64_t elements, int type);
void ranks_free(ranks* of);
/// Why the newest call of this thread failed.
const char* ranks_error(void);

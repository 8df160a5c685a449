#include "ranks.h"

#include <stddef.h>
#include <tutti/tutti_c.h>

// A `ranks` is a communicator.
static tutti_comm* comm_of(ranks* of) { return (tutti_comm*)of; }
static _Thread_local const char* own_error;  // of this file; NULL: Tutti's

bool ranks_id(const char* address, char id[RANKS_ID]) {
  _Static_assert((int)RANKS_ID == (int)TUTTI_UNIQUE_ID_TEXT,
                 "ranks.h has the length of Tutti's text");
  tutti_unique_id unique;
  own_error = NULL;
  return tutti_unique_id_make(address, &unique) == TUTTI_OK &&
         tutti_unique_id_to_text(&unique, id) == TUTTI_OK;
}

ranks* ranks_init(const char* id, uint32_t rank, uint32_t world) {
  tutti_unique_id unique;
  tutti_options options;
  tutti_comm* comm = NULL;
  own_error = NULL;
  if (tutti_unique_id_from_text(id, &unique) != TUTTI_OK ||
      tutti_options_init(&options, sizeof options) != TUTTI_OK) {
    return NULL;
  }
  options.invariant = 1;             // the same bits for a token whatever the batch
  options.timeout_ns = 30000000000;  // a server that stands still is an error
  if (rank > INT32_MAX || world > INT32_MAX) {
    own_error = "the rank or the number of ranks is too large";
    return NULL;
  }
  tutti_comm_create(&unique, (int)rank, (int)world, &options, &comm);
  return (ranks*)comm;
}

bool ranks_allreduce(ranks* of, void* data, int64_t elements, int type) {
  own_error = NULL;
  if (elements < 0) {
    own_error = "the number of elements is negative";
    return false;
  }
  int tutti_type;
  switch (type) {
    case RANKS_F32:
      tutti_type = TUTTI_FLOAT32;
      break;
    case RANKS_F16:
      tutti_type = TUTTI_FLOAT16;
      break;
    case RANKS_BF16:
      tutti_type = TUTTI_BFLOAT16;
      break;
    default:
      own_error = "tensors of this type are not summed";
      return false;
  }
  return tutti_all_reduce(comm_of(of), data, data, (size_t)elements, tutti_type, TUTTI_SUM) ==
         TUTTI_OK;
}

void ranks_free(ranks* of) { tutti_comm_free(comm_of(of)); }

const char* ranks_error(void) { return own_error != NULL ? own_error : tutti_error_message(); }

// The functions of libibverbs that Tutti calls, under their own names: each hands its arguments on
// to the library's. So everything else is written as if that was linked, and the header's inline
// functions find what they call. (Sends, receives and completions are inline, and call the driver
// of the device at once.) The names are hidden, so a program may use libibverbs beside Tutti.
#include "transport/verbs/library.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdlib>

namespace tutti {
namespace {

struct Library {
  void* handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  std::string missing;

  Library() {
    if (handle == nullptr) {
      const char* const why = dlerror();
      missing = std::string("there is no libibverbs here (") + (why != nullptr ? why : "") + ")";
    } else if (dlsym(handle, "ibv_is_fork_initialized") == nullptr) {
      // The newest of them.
      missing = "the libibverbs here is older than 1.13, of rdma-core 35";
    }
  }
};

const Library& library() {
  static const Library opened;
  return opened;
}

/// One that every libibverbs has which is not missing.
template <class F>
F* find(const char* name) {
  void* const function = dlsym(library().handle, name);
  if (function == nullptr) std::abort();
  return reinterpret_cast<F*>(function);
}

}  // namespace

bool has_rdma_devices() { return access("/sys/class/infiniband", F_OK) == 0; }

const std::string& why_no_verbs_library() {
  static const std::string no_device =
      "this host has no RDMA device, or this process cannot see it";
  return has_rdma_devices() ? library().missing : no_device;
}

}  // namespace tutti

// Of the header, they wrap the functions.
#undef ibv_query_port
#undef ibv_reg_mr

#define TUTTI_VERB(result, name, parameters, arguments)                 \
  [[gnu::visibility("hidden")]] result name parameters {                \
    static auto* const function = tutti::find<decltype(::name)>(#name); \
    return function arguments;                                          \
  }

extern "C" {

TUTTI_VERB(ibv_device**, ibv_get_device_list, (int* count), (count))
TUTTI_VERB(void, ibv_free_device_list, (ibv_device * *list), (list))
TUTTI_VERB(const char*, ibv_get_device_name, (ibv_device * device), (device))
TUTTI_VERB(ibv_context*, ibv_open_device, (ibv_device * device), (device))
TUTTI_VERB(int, ibv_close_device, (ibv_context * context), (context))
TUTTI_VERB(int, ibv_query_device, (ibv_context * context, ibv_device_attr* attributes),
           (context, attributes))
TUTTI_VERB(int, ibv_query_port,
           (ibv_context * context, std::uint8_t port, _compat_ibv_port_attr* attributes),
           (context, port, attributes))
TUTTI_VERB(ssize_t, _ibv_query_gid_table,
           (ibv_context * context, ibv_gid_entry* entries, std::size_t most, std::uint32_t flags,
            std::size_t entry_bytes),
           (context, entries, most, flags, entry_bytes))
TUTTI_VERB(ibv_fork_status, ibv_is_fork_initialized, (), ())
TUTTI_VERB(int, ibv_fork_init, (), ())

TUTTI_VERB(int, ibv_get_async_event, (ibv_context * context, ibv_async_event* event),
           (context, event))
TUTTI_VERB(void, ibv_ack_async_event, (ibv_async_event * event), (event))
TUTTI_VERB(const char*, ibv_event_type_str, (ibv_event_type event), (event))
TUTTI_VERB(const char*, ibv_port_state_str, (ibv_port_state state), (state))
TUTTI_VERB(const char*, ibv_wc_status_str, (ibv_wc_status status), (status))

TUTTI_VERB(ibv_pd*, ibv_alloc_pd, (ibv_context * context), (context))
TUTTI_VERB(int, ibv_dealloc_pd, (ibv_pd * domain), (domain))
TUTTI_VERB(ibv_mr*, ibv_reg_mr, (ibv_pd * domain, void* memory, std::size_t bytes, int access),
           (domain, memory, bytes, access))
TUTTI_VERB(ibv_mr*, ibv_reg_dmabuf_mr,
           (ibv_pd * domain, std::uint64_t offset, std::size_t bytes, std::uint64_t address,
            int descriptor, int access),
           (domain, offset, bytes, address, descriptor, access))
TUTTI_VERB(int, ibv_dereg_mr, (ibv_mr * region), (region))

TUTTI_VERB(ibv_comp_channel*, ibv_create_comp_channel, (ibv_context * context), (context))
TUTTI_VERB(int, ibv_destroy_comp_channel, (ibv_comp_channel * channel), (channel))
TUTTI_VERB(ibv_cq*, ibv_create_cq,
           (ibv_context * context, int entries, void* user, ibv_comp_channel* channel, int vector),
           (context, entries, user, channel, vector))
TUTTI_VERB(int, ibv_destroy_cq, (ibv_cq * queue), (queue))
TUTTI_VERB(int, ibv_get_cq_event, (ibv_comp_channel * channel, ibv_cq** queue, void** user),
           (channel, queue, user))
TUTTI_VERB(void, ibv_ack_cq_events, (ibv_cq * queue, unsigned count), (queue, count))
TUTTI_VERB(ibv_qp*, ibv_create_qp, (ibv_pd * domain, ibv_qp_init_attr* attributes),
           (domain, attributes))
TUTTI_VERB(int, ibv_modify_qp, (ibv_qp * pair, ibv_qp_attr* attributes, int which),
           (pair, attributes, which))
TUTTI_VERB(int, ibv_destroy_qp, (ibv_qp * pair), (pair))

}  // extern "C"

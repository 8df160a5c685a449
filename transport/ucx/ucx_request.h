// What UCX is given to do for a wire (ucx_wire.h), and the memory that it reads and writes then.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "transport/ucx/ucx_wire.h"

namespace tutti {

/// Of a ring: what UCX knows it by.
class UcxMapping {
 public:
  UcxMapping(std::shared_ptr<UcxContext> context, const RingMemory& memory)
      : context_(std::move(context)) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = memory.data();
    params.length = memory.size();
    const UcxLibrary& ucx = context_->ucx;
    ucx.check(ucx.mem_map(context_->handle, &params, &handle_), "mapping memory of a link");
  }
  ~UcxMapping() { context_->ucx.mem_unmap(context_->handle, handle_); }
  UcxMapping(const UcxMapping&) = delete;
  UcxMapping& operator=(const UcxMapping&) = delete;

  static ucp_mem_h of(const RingMemory& memory) {
    return static_cast<const UcxMapping*>(memory.registration.get())->handle_;
  }

 private:
  std::shared_ptr<UcxContext> context_;
  ucp_mem_h handle_ = nullptr;
};

template <class Call>
bool UcxWire::start(Request* r, ucp_request_param_t params, Call&& call) {
  params.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.user_data = r;
  if (r->memory) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    params.memh = UcxMapping::of(*r->memory);
  }
  // UCX may call back before it returns.
  r->calling = true;
  const ucs_status_ptr_t request = call(params);
  r->calling = false;
  const bool under_way = UCS_PTR_IS_PTR(request);
  if (r->ended || !under_way) end(r);
  if (UCS_PTR_IS_ERR(request)) {
    close_with(fmt::format("UCX: {}", ucx_.text(UCS_PTR_STATUS(request))));
  }
  return under_way;
}

}  // namespace tutti

// The functions of UCX that Tutti calls, from libucp.so.0, which is looked for when the first is
// needed: a program that does not use UCX does not load it. When it is loaded, UCX usually takes
// the process's error signals, and hooks into its memory calls. Here it does neither.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

namespace tutti {

struct UcxLibrary {
  decltype(&::ucp_config_read) config_read;
  decltype(&::ucp_config_modify) config_modify;
  decltype(&::ucp_config_release) config_release;
  decltype(&::ucp_init_version) init_version;
  decltype(&::ucp_cleanup) cleanup;
  decltype(&::ucp_worker_create) worker_create;
  decltype(&::ucp_worker_destroy) worker_destroy;
  decltype(&::ucp_worker_get_address) worker_get_address;
  decltype(&::ucp_worker_release_address) worker_release_address;
  decltype(&::ucp_worker_get_efd) worker_get_efd;
  decltype(&::ucp_worker_arm) worker_arm;
  decltype(&::ucp_worker_progress) worker_progress;
  decltype(&::ucp_worker_set_am_recv_handler) set_am_recv_handler;
  decltype(&::ucp_ep_create) ep_create;
  decltype(&::ucp_ep_print_info) ep_print_info;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx;
  decltype(&::ucp_am_send_nbx) am_send_nbx;
  decltype(&::ucp_am_recv_data_nbx) am_recv_data_nbx;
  decltype(&::ucp_request_check_status) request_check_status;
  decltype(&::ucp_request_free) request_free;
  decltype(&::ucp_mem_map) mem_map;
  decltype(&::ucp_mem_unmap) mem_unmap;
  decltype(&::ucs_status_string) status_string;
  decltype(&::ucp_get_version_string) version_string;

  /// Why there is none; empty: there is.
  static const std::string& missing();
  /// Throws Error(system) where there is none.
  static const UcxLibrary& get();

  std::string text(ucs_status_t status) const { return status_string(status); }
  /// Throws Error(system), with `what` was being done, unless `status` is good.
  void check(ucs_status_t status, const char* what) const;
};

}  // namespace tutti

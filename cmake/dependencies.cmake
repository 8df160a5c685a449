# What the library needs; docs/dependencies.md says why. TUTTI_LINK is what a static libtutti.a
# makes its users link.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(hwy 1.0 REQUIRED)  # its headers alone: core/supported_targets.h
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(pugixml 1.12 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc>=2.9)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium>=1.0.18)
pkg_check_modules(XXHASH REQUIRED libxxhash>=0.8)  # its header alone
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd>=1.5)  # of the engines

set(TUTTI_LINK spdlog::spdlog fmt::fmt pugixml::pugixml PkgConfig::HWLOC PkgConfig::SODIUM Threads::Threads)

# RDMA verbs: compiled where the headers of libibverbs are, unless TUTTI_VERBS is OFF. Devices, and the
# library, are looked for at run time: it is not linked.
set(TUTTI_VERBS AUTO CACHE STRING "RDMA verbs: ON, OFF, or AUTO (on where its headers are found)")
set_property(CACHE TUTTI_VERBS PROPERTY STRINGS AUTO ON OFF)
set(TUTTI_HAS_VERBS OFF)
set(TUTTI_VERBS_STATE "off (TUTTI_VERBS)")
if(TUTTI_VERBS)
  # 1.13, of rdma-core 35, brought ibv_is_fork_initialized.
  set(required)
  if(NOT TUTTI_VERBS STREQUAL AUTO)
    set(required REQUIRED)
  endif()
  pkg_check_modules(IBVERBS ${required} libibverbs>=1.13)
  if(IBVERBS_FOUND)
    set(TUTTI_HAS_VERBS ON)
    set(TUTTI_VERBS_STATE "headers of libibverbs ${IBVERBS_VERSION}")
  else()
    set(TUTTI_VERBS_STATE "off (no libibverbs was found)")
  endif()
endif()

# UCX: compiled where its headers are, unless TUTTI_UCX is OFF. The library is looked for at run
# time, when TUTTI_TRANSPORT asks for it: it is not linked.
set(TUTTI_UCX AUTO CACHE STRING "UCX: ON, OFF, or AUTO (on where its headers are found)")
set_property(CACHE TUTTI_UCX PROPERTY STRINGS AUTO ON OFF)
set(TUTTI_HAS_UCX OFF)
set(TUTTI_UCX_STATE "off (TUTTI_UCX)")
if(TUTTI_UCX)
  # 1.13 is the first that takes mapped memory with a message (UCP_OP_ATTR_FIELD_MEMH).
  set(required)
  if(NOT TUTTI_UCX STREQUAL AUTO)
    set(required REQUIRED)
  endif()
  pkg_check_modules(UCX ${required} ucx>=1.13)
  if(UCX_FOUND)
    set(TUTTI_HAS_UCX ON)
    set(TUTTI_UCX_STATE "headers of UCX ${UCX_VERSION}")
  else()
    set(TUTTI_UCX_STATE "off (no UCX 1.13 or newer was found)")
  endif()
endif()

# What `cmake --install` lays out: the library, the public headers under include/tutti in the
# folders that they have here, a CMake package, pkg-config files. Programs that are installed too
# say so themselves (tutti_program).
include(CMakePackageConfigHelpers)

set(TUTTI_PUBLIC_HEADERS
  tutti.h
  core/background.h
  core/types.h
  core/error.h
  core/memory.h
  collectives/collective.h
  comm/communicator.h
  comm/elastic.h
  comm/window.h
  comm/typed.h
  bootstrap/unique_id.h
  parallel/agreement.h
  parallel/axis.h
  parallel/checkpoint/checkpoint.h
  parallel/checkpoint/engine.h
  parallel/checkpoint/part.h
  parallel/data/sampler.h
  parallel/data_parallel/buckets.h
  parallel/data_parallel/data_parallel.h
  parallel/data_parallel/policy.h
  parallel/data_parallel/reduction.h
  parallel/device.h
  parallel/eight_bits.h
  parallel/expert/expert_parallel.h
  parallel/expert/router.h
  parallel/domain/blocks.h
  parallel/domain/halo.h
  parallel/domain/halo_layout.h
  parallel/gather_trace.h
  parallel/gpu.h
  parallel/layer_math.h
  parallel/hybrid/shared_gradients.h
  parallel/pipeline/costs.h
  parallel/pipeline/draw.h
  parallel/pipeline/execute.h
  parallel/pipeline/generate.h
  parallel/pipeline/schedule.h
  parallel/pipeline/simulate.h
  parallel/pipeline/text.h
  parallel/pipeline/verify.h
  parallel/memory_pool.h
  parallel/mesh.h
  parallel/not_finite.h
  parallel/optimizer/kernels.h
  parallel/optimizer/optimizer.h
  parallel/sequence/attention.h
  parallel/sequence/kernel.h
  parallel/sequence/layout.h
  parallel/sharded/gather.h
  parallel/sharded/layout.h
  parallel/sharded/order.h
  parallel/sharded/policy.h
  parallel/sharded/reduce.h
  parallel/sharded/sharded.h
  parallel/sharded/state.h
  parallel/sharded/unit.h
  parallel/tensor/linear.h
  parallel/tensor/multiply.h
  parallel/tensor/pairs.h
  parallel/tensor/vocabulary.h
  parallel/throttled_axis.h
  parallel/trace.h)

file(REMOVE_RECURSE ${PROJECT_BINARY_DIR}/include/tutti)  # with links to headers that have gone
foreach(header IN LISTS TUTTI_PUBLIC_HEADERS)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti/${folder})
  # The same spelling, <tutti/...>, in the build tree.
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/tutti/${folder})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${header} ${PROJECT_BINARY_DIR}/include/tutti/${header}
       SYMBOLIC)
endforeach()
if(TUTTI_HAS_TORCH)  # bindings/torch installs its headers itself
  file(GLOB headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS bindings/torch/*.h)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/tutti/bindings/torch)
  foreach(header IN LISTS headers)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${header} ${PROJECT_BINARY_DIR}/include/tutti/${header}
         SYMBOLIC)
  endforeach()
endif()

install(TARGETS tutti EXPORT tuttiTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tuttiConfig.cmake.in tuttiConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(tuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tuttiConfig.cmake ${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake
              cmake/tuttiTorch.cmake
        DESTINATION ${package_dir})

# A shared library brings its own dependencies; a static one leaves them to whoever links it.
set(pc_requires "")
set(pc_parallel_requires "")
if(NOT BUILD_SHARED_LIBS)
  set(pc_parallel_requires " fmt")
  set(pc_requires "spdlog fmt pugixml hwloc libsodium")
endif()
# Relative to the .pc file, so that a tree that was staged or moved still works.
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
foreach(package IN ITEMS tutti tutti_parallel)
  configure_file(cmake/${package}.pc.in ${package}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${package}.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# The Python package has the same below its own folder (bindings/python): a component that pip installs,
# and that is no part of `cmake --install`, whose prefix is no package.
if(TUTTI_PYTHON)
  set(component COMPONENT python EXCLUDE_FROM_ALL)
  foreach(header IN LISTS TUTTI_PUBLIC_HEADERS)
    cmake_path(GET header PARENT_PATH folder)
    install(FILES ${header} DESTINATION include/tutti/${folder} ${component})
  endforeach()
  install(EXPORT tuttiTargets NAMESPACE tutti:: DESTINATION lib/cmake/tutti ${component})
  install(FILES ${PROJECT_BINARY_DIR}/tuttiConfig.cmake ${PROJECT_BINARY_DIR}/tuttiConfigVersion.cmake
                cmake/tuttiTorch.cmake
          DESTINATION lib/cmake/tutti ${component})
  install(TARGETS tutti tutti_parallel LIBRARY DESTINATION lib NAMELINK_SKIP ${component})
  if(TARGET tutti_windows)
    install(TARGETS tutti_windows LIBRARY DESTINATION lib/tutti ${component})
  endif()
  if(TUTTI_NCCL)
    install(TARGETS nccl LIBRARY DESTINATION lib/tutti NAMELINK_SKIP ${component})
    install(FILES bindings/nccl/nccl.h bindings/nccl/nccl_device.h
            DESTINATION include/tutti/nccl ${component})
  endif()
endif()

# What a program hears that uses GPUs where the driver, or libtutti_cuda.so, is missing, or where the
# latter is of another build. Run by ctest: RANK (module_rank), DRIVER (module_driver), LIBRARY
# (libtutti.so), OTHER (a module of another build), HAS_CUDA, FOLDER (to work in).
function(expect libraries)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env "LD_LIBRARY_PATH=${libraries}" ${RANK}
                  OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE status)
  foreach(line IN LISTS ARGN)
    string(FIND "${out}" "${line}" at)
    if(at EQUAL -1 OR NOT status EQUAL 0)
      message(FATAL_ERROR "${RANK} with LD_LIBRARY_PATH=${libraries} ended with ${status}, and should "
                          "have said '${line}':\n${out}${err}")
    endif()
  endforeach()
endfunction()

set(driver ${FOLDER}/driver)
set(alone ${FOLDER}/alone)
set(apart ${FOLDER}/apart)
file(REMOVE_RECURSE ${FOLDER})
foreach(folder IN ITEMS ${alone} ${apart})
  file(COPY ${LIBRARY} DESTINATION ${folder} FOLLOW_SYMLINK_CHAIN)
endforeach()
file(COPY_FILE ${OTHER} ${FOLDER}/libtutti_cuda.so)
file(COPY ${FOLDER}/libtutti_cuda.so DESTINATION ${apart}/tutti)
file(COPY ${DRIVER} DESTINATION ${driver})

set(found "driver: there" "module after a call on the host: closed" "the memory is of GPU 0, the host's of -1")
expect("${FOLDER}/none" "driver: none" "module after a call on the host: closed"
       "GPUs: 0, there is no driver of NVIDIA's GPUs (libcuda.so.1)")
expect("${driver}:${alone}" ${found}
       "GPUs: 0, GPU memory needs libtutti_cuda.so, a part of Tutti that is not in ${alone}/tutti"
       "call: system: GPU memory needs libtutti_cuda.so" "module after a call on the GPU: closed")
expect("${driver}:${apart}" ${found}
       "call: system: GPU memory needs ${apart}/tutti/libtutti_cuda.so, but that is of another build")
if(HAS_CUDA)
  # The module is there, and finds that this driver is none.
  expect("${driver}" ${found} "call: system: there is no CUDA device 0"
         "module after a call on the GPU: open")
endif()

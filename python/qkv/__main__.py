from qkv_command import main

main()
